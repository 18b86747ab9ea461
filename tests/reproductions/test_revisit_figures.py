"""Values read off figures go by the names of the objectives."""

from unseen.reproductions.request import METRICS
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.revisit_figures import METRIC_CORRELATION, RHO, SPACE_CORRELATION


def test_names_are_known() -> None:
    known = set(objectives.objectives()) | set(objectives.switched("cub200"))
    assert set(RHO["cub200"]) == known
    assert set(RHO["cars196"]) | set(RHO["online_products"]) <= known
    for pairs in METRIC_CORRELATION.values():
        assert {metric for pair in pairs for metric in pair} == {*METRICS, "recall@4"}


def test_the_switch_lowered_their_decay() -> None:
    theirs = RHO["cub200"]
    for name, (plain, _) in objectives.switched("cub200").items():
        assert theirs[name] < theirs[plain]


def test_correlations_are_correlations() -> None:
    tables = [*METRIC_CORRELATION.values(), *SPACE_CORRELATION.values()]
    assert all(abs(r) <= 1 for table in tables for r in table.values())
    assert METRIC_CORRELATION["cub200"]["nmi", "revisit_map"] == 0.50

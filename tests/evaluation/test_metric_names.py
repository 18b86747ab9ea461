import pytest

from unseen.evaluation.metric_names import parse_metric
from unseen.metrics.fnmr_at_fmr import FnmrAtFmr
from unseen.metrics.map_at_1000 import MapAt1000
from unseen.metrics.recall import Recall


def test_values_after_the_at_sign() -> None:
    recall = parse_metric("recall@4")
    assert isinstance(recall, Recall)
    assert recall.k == 4
    rate = parse_metric("fnmr_at_fmr@0.01")
    assert isinstance(rate, FnmrAtFmr)
    assert rate.fmr == 0.01
    assert isinstance(parse_metric("map_at_1000"), MapAt1000)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recal@4", "unknown metric 'recal': did you mean recall"),
        ("map_at_q", "map_at_r"),
        ("zzz", "recall"),
        ("base", "unknown metric"),
        ("nmi@3", "metric nmi takes no value"),
        ("recall@many", "there must be a number"),
        ("recall@", "there must be a number"),
        ("recall@0", "k must be"),
        ("recall@inf", "k must be"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_metric(name)

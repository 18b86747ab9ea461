"""Manifold mixup as a negative control: it compresses the embeddings, and recall should fall.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, supplement F, figure 12
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unseen.core.statistics import Spread, over_seeds
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, kept_message, plain_text, score_text
from unseen.reproductions.claims import Claim, against
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import of_runs, spectra, spectra_figure
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.studies.study_file import Plan

R1 = "recall@1"
OBJECTIVES = ("Softmax", "Triplet (D)", "Margin (D, beta = 0.6)")
WITHOUT, WITH = "without mixup", "with mixup"


class Mixup(PublishedStudy):
    source = "Roth et al. 2020, supplement F, figure 12 (CUB-200, three objectives)"
    shows = "a negative control: recall and spectra with and without manifold mixup"
    origin = ROTH
    answers = ("R30", "R31")

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"mixup mixes images and early layers, and {ask.data} holds features: "
                "use --data glyphs or a folder of images"
            )
        known = objectives.objectives(ask.is_quick, ask.set_up_data)
        factors = {
            "mixup": {WITHOUT: {}, WITH: {"manifold_mixup": True}},
            "objective": {name: known[name] for name in OBJECTIVES},
        }
        about = "Manifold mixup in the set-up of Roth et al. 2020."
        # nothing can be mixed in layers that run only once
        seeds = 2 if ask.is_quick else 5
        return [ask.plan("mixup", about, factors, {"freeze_until": None}, seeds, source=ROTH)]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        return of_runs(results["mixup"].runs, spectra, progress)

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        result = results["mixup"]
        lower = [
            against(result, WITHOUT, WITH, of=name, experiment=name, expected=-1)
            for name in OBJECTIVES
        ]
        decay = [
            change(result, measured, "rho", (WITHOUT, WITH), experiment=name) for name in OBJECTIVES
        ]
        return [Claim("R30", lower), Claim("R31", decay, "rho")]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = results["mixup"]
        return [_recall(result), _spectra(result, measured)]


def _recall(results: Results) -> Section:
    rows = [
        [name, *[score_text(results.of(name, each), R1) for each in (WITHOUT, WITH)]]
        for name in OBJECTIVES
    ]
    scores = Table(["objective", "R@1 %", "with mixup"], rows)
    sentences = [*kept_message(results), *baselines_message(results)]
    return Section("Recall", sentences, [scores])


def _spectra(results: Results, measured: dict[str, Any]) -> Section:
    rows, names = [], []
    for name in OBJECTIVES:
        rhos = [_rho(results.of(name, each), measured) for each in (WITHOUT, WITH)]
        if rhos[0] is None or rhos[1] is None:
            rows.append([name, *["–" if rho is None else plain_text(rho) for rho in rhos]])
            continue
        names.append(name)
        rows.append([name, *[plain_text(rho) for rho in rhos if rho is not None]])
    if not names:
        return Section("Spectra", ["No pair of runs left weights to measure spectra of."])
    panels = {n: (results.of(n, WITHOUT), results.of(n, WITH)) for n in names}
    caption = "Spectral decay rho of the training embeddings, ± half of its 95 % interval."
    figure = drawn(
        "spectra",
        "Singular values of the training embeddings over their sum, on a logarithmic scale, mean "
        "over seeds: of all items (above) and as a mean over classes (below); solid without mixup, "
        "dashed with it.",
        lambda: spectra_figure(panels, measured, WITH),
    )
    return Section(
        "Spectra", [], [Table(["objective", "rho", "with mixup"], rows, caption)], [figure]
    )


def _rho(runs: Sequence[Run], measured: Mapping[str, Any]) -> Spread | None:
    result = [measured[run.planned.key]["rho"] for run in runs if run.planned.key in measured]
    return over_seeds(result) if result else None

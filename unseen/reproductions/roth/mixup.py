"""Manifold mixup as a negative control: it compresses the embeddings, and recall should fall.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, supplement F, figure 12
"""

from functools import partial
from typing import Any

from unseen.reports.tables import Table
from unseen.reproductions.against_source import baselines_message, score_text
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import against, changed
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import measured_value, of_runs, spectra, spectra_section
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_file import Plan
from unseen.studies.validity_checks import MethodRuns

R1 = "recall@1"
OBJECTIVES = ("Softmax", "Triplet (D)", "Margin (D, beta = 0.6)")
WITHOUT, WITH = "without mixup", "with mixup"


class Mixup(PublishedStudy):
    source = "Roth et al. 2020, supplement F, figure 12 (CUB-200, three objectives)"
    shows = "a negative control: recall and spectra with and without manifold mixup"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"mixup mixes images and early layers, and {ask.data} holds features: "
                "use glyphs or a folder of images"
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

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        return of_runs(results["mixup"].runs, spectra, progress)

    def claims(self, evidence: Evidence) -> list[Claim]:
        result = evidence.results["mixup"]
        lower = [
            against(result, WITHOUT, WITH, of=name, experiment=name, expected=-1)
            for name in OBJECTIVES
        ]
        decay = [
            changed(name, (MethodRuns(result, name, WITHOUT), MethodRuns(result, name, WITH)),
                    partial(measured_value, evidence.measured, "rho")) for name in OBJECTIVES
        ]  # fmt: skip
        return [Claim("R30", lower), Claim("R31", decay, "rho")]

    def sections(self, evidence: Evidence) -> list[Section]:
        result, measured = evidence.results["mixup"], evidence.measured
        pairs = {n: (result.of(n, WITHOUT), result.of(n, WITH)) for n in OBJECTIVES}
        return [_recall(result), spectra_section(pairs, measured, {})]


def _recall(results: Results) -> Section:
    rows = [
        [name, *[score_text(results.of(name, each), R1) for each in (WITHOUT, WITH)]]
        for name in OBJECTIVES
    ]
    scores = Table(["objective", "R@1 %", "with mixup"], rows)
    return Section("Recall", baselines_message(results), [scores])

"""All images of a data set looked at once: what is wrong, copies, class sizes, advice."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unseen.core.contracts import Progress
from unseen.core.files import shown
from unseen.core.names import by_front_end
from unseen.data.base import lost_line
from unseen.data.containers.locations import seen_from
from unseen.data.images import duplicates, table_file
from unseen.data.images.image_check import WRONG, Finding
from unseen.data.images.prefetch import results_of

_BINS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Survey:
    """findings, labels, parts: one per file. labels: the class's name, or nothing. parts: train,
    validation, test, or nothing."""

    findings: list[Finding]
    labels: list[str]
    parts: list[str]

    @cached_property
    def usable(self) -> list[int]:
        return [i for i, finding in enumerate(self.findings) if finding.is_usable]

    @cached_property
    def exact(self) -> duplicates.Groups:
        result = duplicates.same(self.findings[i].digest for i in self.usable)
        return [[self.usable[k] for k in group] for group in result]

    @cached_property
    def near(self) -> duplicates.Groups:
        """Groups that look the same and are not all the same file."""
        if not self.usable:
            return []
        inspections = [self.findings[i] for i in self.usable]
        hashes = np.array([finding.hash for finding in inspections], dtype=np.uint64)
        result = duplicates.near(hashes, np.stack([finding.thumbnail for finding in inspections]))  # type: ignore[misc]
        groups = [[self.usable[k] for k in group] for group in result]
        return [g for g in groups if len({self.findings[i].digest for i in g}) > 1]

    def across_parts(self, groups: duplicates.Groups) -> duplicates.Groups:
        return [g for g in groups if len({self.parts[i] for i in g} - {""}) > 1]

    def across_classes(self, groups: duplicates.Groups) -> duplicates.Groups:
        return [g for g in groups if len({self.labels[i] for i in g}) > 1]

    @cached_property
    def class_sizes(self) -> dict[str, int]:
        """Usable images of each class; one without any is none."""
        return dict(sorted(Counter(self.labels[i] for i in self.usable).items()))

    @property
    def lost_classes(self) -> list[str]:
        """Those that all files of cannot be used."""
        return sorted({*self.labels} - {"", *self.class_sizes})

    def with_problem(self, problem: str) -> list[Finding]:
        return [finding for finding in self.findings if problem in finding.problems]

    @property
    def has_errors(self) -> bool:
        """Files that cannot be used, or copies that inflate scores."""
        wrong = len(self.usable) < len(self.findings)
        return wrong or bool(self.across_parts(self.exact) or self.across_parts(self.near))

    def histogram(self) -> list[tuple[str, int]]:
        """How many classes have how many images, in doubling steps."""
        sizes = np.array(list(self.class_sizes.values()))
        rows = []
        for low, high in zip(_BINS, (*_BINS[1:], 10**12), strict=True):
            if number := int(((sizes >= low) & (sizes < high)).sum()):
                last = f"-{high - 1}" if high - 1 > low else ""
                rows.append((f"{low}+" if high == 10**12 else f"{low}{last}", number))
        return rows

    def advice(self) -> list[str]:
        return [*_on_classes(self.class_sizes), *self._on_files()]

    def _on_files(self) -> list[str]:
        advice, fix = [], by_front_end("--fix FILE", "write_list")
        if lost := self.lost_classes:
            advice.append(lost_line(lost))
        if number := len(self.findings) - len(self.usable):
            advice.append(f"{number} files cannot be used: {fix} writes a list without them")
        if self.across_parts(self.exact) or self.across_parts(self.near):
            advice.append(
                f"copies on both sides of the split inflate scores: {fix} keeps the test side"
            )
        if self.across_classes(self.exact):
            advice.append("the same image under two labels: at least one label is wrong")
        sides = [min(self.findings[i].size) for i in self.usable]
        if sides and np.median(sides) > 400:
            advice.append(
                f"the images are large (median short side {int(np.median(sides))}): "
                "`unseen data pack` makes a copy that trains several times faster"
            )
        return advice

    def clean(self) -> list[int]:
        """Usable files, one of each group of duplicates and, across parts or classes, of near
        ones; a test image stays rather than a training one."""
        dropped: set[int] = set()
        near = [*self.across_parts(self.near), *self.across_classes(self.near)]
        for group in [*self.exact, *near]:
            left = [i for i in group if i not in dropped]
            selected = min(left, key=lambda i: (self.parts[i] != "test", i), default=None)
            dropped |= set(left) - {selected}
        return [i for i in self.usable if i not in dropped]

    def to_dict(self) -> dict[str, Any]:
        def paths(groups: duplicates.Groups) -> list[list[str]]:
            return [[shown(self.findings[i].path) for i in group] for group in groups]

        problems = sorted({p for finding in self.findings for p in finding.problems})
        return {
            "advice": self.advice(),
            "classes": self.class_sizes,
            "exact_copies": paths(self.exact),
            "exact_copies_across_classes": paths(self.across_classes(self.exact)),
            "exact_copies_across_split": paths(self.across_parts(self.exact)),
            "files": len(self.findings),
            "lost_classes": self.lost_classes,
            "near_copies": paths(self.near),
            "near_copies_across_classes": paths(self.across_classes(self.near)),
            "near_copies_across_split": paths(self.across_parts(self.near)),
            "problems": {
                p: [{"path": shown(f.path), "reason": f.reason} for f in self.with_problem(p)]
                for p in problems
            },
            "usable": len(self.usable),
            "wrong": {p: len(self.with_problem(p)) for p in WRONG if self.with_problem(p)},
        }


def survey(
    inspections: Sequence[Callable[[], Finding]],
    labels: Sequence[str],
    parts: Sequence[str],
    workers: int = 2,
    progress: Progress | None = None,
) -> Survey:
    """Inspects every image, a few at a time."""
    findings = results_of(lambda inspection: inspection(), inspections, max(1, workers), progress)
    return Survey(findings, list(labels), list(parts))


def write_list(result: Survey, out: Path, with_split: bool = False) -> int:
    """The clean files as a CSV of path, label and perhaps split; paths are relative to it where
    they lie below."""
    base = Path(os.path.abspath(out)).parent
    selected = result.clean()
    columns = {
        "path": [seen_from(result.findings[i].path, base) for i in selected],
        "label": [result.labels[i] for i in selected],
    }
    columns |= {"split": [result.parts[i] for i in selected]} if with_split else {}
    table_file.write(out, columns)
    return len(selected)


def _on_classes(counts: Mapping[str, int]) -> list[str]:
    """Which sampler suits the sizes of the classes."""
    advice, sizes = [], np.array(list(counts.values()))
    if lone := [name for name, size in counts.items() if size == 1]:
        named = ", ".join(lone[:3]) + (", ..." if len(lone) > 3 else "")
        has = "class has" if len(lone) == 1 else "classes have"
        advice.append(
            f"{len(lone)} {has} one image ({named}): no positive pair, only a distraction"
        )
    paired = sizes[sizes > 1]
    if not len(paired):
        return [*advice, "no class has two images: there is nothing to learn from"]
    smallest, typical, largest = int(paired.min()), int(np.median(paired)), int(paired.max())
    if typical < 4:
        advice.append(
            f"classes are small (median {typical}): sampler=m_per_class sampler.per_class=2"
        )
    else:
        advice.append("sampler=m_per_class with 4 per class (the default) suits these classes")
    if largest > 10 * smallest:
        advice.append(
            f"class sizes differ much ({smallest} to {largest}): m_per_class visits classes "
            "evenly, sampler=random would see mostly the large ones"
        )
    return advice

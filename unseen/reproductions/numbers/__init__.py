"""The tables of the source documents as CSV, in percent; an empty cell was not given.

    table("thesis_losses") -> [{"dataset": "cub200", "network": "resnet50", "dim": 64.0, ...}, ...]

revisit_objectives          all objectives, ResNet-50 128-d, 5 seeds, best test epoch; R-... = with
                            tuple switching
revisit_samplers            batch samplers by loss; the swapped NMI and mAP headers of its products
                            table are corrected
revisit_backbones_untrained recall@1 of ImageNet weights with a random linear layer
density_table1              GoogLeNet 128-d, NMI and recall, with and without the density term
horde_tables12              v1..v6 = R@1,2,4,8,16,32 (CUB, Cars), R@1,10,100,1000 (products),
                            R@1,10,20,30,40,50 (In-Shop); dagger = all orders + PCA
horde_orders                CUB, binomial deviance: orders trained by order tested, three variants
thesis_losses               10 losses x 3 networks x 4 sizes; v1..v4 = R@1,2,4,8 (CUB, Cars) or
                            R@1,10,100,1000 (products)
thesis_protocols            10-fold, validation ratios, tuned values
thesis_own_loss             the thesis' own loss, BN-Inception 512
vo_hays_table1              NetA read at pool5.3: R@1,2,4,8,16,32, of products R@1,10,100,1000
sources (TOML)              what each source trains with
vo_hays_table2, _table3     recall@1 by layer; foreign models, output against penultimate layer
"""

import csv
import math
import tomllib
from importlib.resources import files
from typing import Any

from unseen.core.names import known

PlannedRun = str | float | None
DEVIATION = "_std"


class Printed(float):
    """A number as the source prints it, with its decimals and its deviation."""

    digits: int
    deviation: float

    def __new__(cls, value: float, digits: int, deviation: float = math.nan) -> "Printed":
        made = super().__new__(cls, value)
        made.digits, made.deviation = digits, deviation
        return made

    @property
    def text(self) -> str:
        """62.10 ±0.27"""
        shown = f"{float(self):.{self.digits}f}"
        deviation = f" ±{self.deviation:.{self.digits}f}"
        return shown + ("" if math.isnan(self.deviation) else deviation)


def names() -> list[str]:
    """The tables there are."""
    return sorted(
        file.name.removesuffix(".csv")
        for file in files(__name__).iterdir()
        if file.name.endswith(".csv")
    )


def table(name: str) -> list[dict[str, PlannedRun]]:
    """The rows of a table; numbers as printed, with the deviation that stands beside them in a
    column of their own, an empty cell as None."""
    file = files(__name__).joinpath(f"{known(name, names(), 'published table')}.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return [{key: _value(row, key) for key in row} for row in rows]


def toml(name: str) -> dict[str, Any]:
    """A file of values that are no table."""
    return tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def rows_of(name: str, data: str) -> list[dict[str, PlannedRun]]:
    """The rows of a table that are of a data set."""
    return [row for row in table(name) if row["dataset"] == data]


def as_number(value: PlannedRun) -> float:
    """NaN where nothing was printed."""
    return value if isinstance(value, float) else math.nan


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _value(row: dict[str, str], key: str) -> PlannedRun:
    if not _is_number(row[key]):
        return row[key] or None
    digits = len(row[key].partition(".")[2])
    deviation = row.get(f"{key}{DEVIATION}", "")
    return Printed(float(row[key]), digits, float(deviation) if deviation else math.nan)

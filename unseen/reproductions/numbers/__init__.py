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
vo_hays_table2, _table3     recall@1 by layer; foreign models, output against penultimate layer
"""

import csv
from importlib.resources import files

from unseen.core.registry import known

PlannedRun = str | float | None


def names() -> list[str]:
    """The tables there are."""
    return sorted(
        file.name.removesuffix(".csv")
        for file in files(__name__).iterdir()
        if file.name.endswith(".csv")
    )


def table(name: str) -> list[dict[str, PlannedRun]]:
    """The rows of a table; numbers as numbers, an empty cell as None."""
    file = files(__name__).joinpath(f"{known(name, names(), 'published table')}.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return [{key: _value(text) for key, text in row.items()} for row in rows]


def _value(text: str) -> PlannedRun:
    try:
        return float(text) if text else None
    except ValueError:
        return text

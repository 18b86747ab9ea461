"""Every table and figure of the five sources that shows a measurement, the command that makes it
again, the section of its page, and what of it is missing here.

    unseen study published                    the list
    unseen study published         docs/sources.md

How the set-up differs is not written here: it is read off the plans (`source_values.py`). A test
holds the sections against pages that were made.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from unseen.reports.tables import Table
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import Ask, find, names

VO_HAYS, LI, ROTH, JACOB, PSOMAS = (
    "Vo and Hays 2019", "Li et al. 2020", "Roth et al. 2020", "Jacob et al. 2019", "Psomas 2020"
)  # fmt: skip
NO_MODELS = "the released models are not at hand: models trained here stand for them"
ONE_SET = "one data set a run: again with --data for the others"
FILE = "BN-Inception only where its weights file lies in torch's cache"
NONE = "–"


@dataclass(frozen=True)
class Item:
    """A table or figure. study, section: where it is shown; none: it is not. data: where it is not
    CUB-200. missing: what of it is not made, and why."""

    source: str
    item: str
    shows: str
    study: str = ""
    section: str = ""
    missing: str = ""
    data: str = "cub200"

    @property
    def command(self) -> str:
        if not self.study:
            return NONE
        words = ["unseen", "study", "published", self.study]
        words += [] if self.study == "toy" else ["--data", self.data]
        return shlex.join([*words, "--budget", "full"])


ITEMS = (
    Item(VO_HAYS, "table 1", "recall at ranks 1 to 32 of NetA read at pool5.3", "layers",
         "The pooled layer at every rank"),
    Item(VO_HAYS, "table 2, figure 1", "recall@1 of the embedding and of the layer before it, NetA "
         "to NetF", "layers", "By layer", "rows of earlier works are not run"),
    Item(VO_HAYS, "table 3", "layers of released models on training and test classes", "layers",
         "Other models", NO_MODELS),
    Item(VO_HAYS, "figure 2", "recall@1 by layer on training and test classes over time", "layers",
         "Over time, and under classification", "on validation classes, after each epoch",
         "cars196"),
    Item(VO_HAYS, "figure 3", "the same under metric loss and under classification", "layers",
         "Over time, and under classification", "on validation classes, after each epoch",
         "cars196"),
    Item(VO_HAYS, "figures 4 and 5", "recall@1 by layer for NetA to NetC, NetD to NetF", "layers",
         "By layer", data="cars196"),
    Item(VO_HAYS, "figure 6", "the same on CUB-200", "layers", "By layer"),
    Item(VO_HAYS, "figure 7", "the same on Online Products", "layers", "By layer",
         data="online_products"),
    Item(VO_HAYS, "figure 8", "queries that two layers answer differently", "layers",
         "Where layers disagree"),
    Item(LI, "table 1", "NMI and recall of three losses with and without density, and three more",
         "density", "Table 1", "clustering and HDC: published values only, not in the catalogue"),
    Item(LI, "figure 1", "t-SNE of ten training classes, three losses without and with density",
         "density", "Maps"),
    Item(LI, "figure 3", "recall at ranks with and without the inter-class term, three losses",
         "density", "With and without"),
    Item(LI, "figure 4", "NMI gain of entropy, orthogonality and density, three losses and sets",
         "density", "Against other regularizers", ONE_SET),
    Item(LI, "figure 5", "t-SNE of all training classes, three losses without and with density",
         "density", "Maps", "of 1,500 items"),
    Item(LI, "figure 6", "NMI against the weight of the term, three losses", "density",
         "Its weight", data="cars196"),
    Item(LI, "figures 7 to 9", "t-SNE map of thumbnails of the test split, contrastive and density",
         "density", "Maps", f"of 1,500 items; {ONE_SET}"),
    Item(ROTH, "table 1", "recall@1 of three networks before training", "parameters",
         "Architecture", FILE),
    Item(ROTH, "tables 2 and 4 to 6, figure 1", "all objectives and miners by five metrics, with "
         "and without the switch", "losses", "Objectives", ONE_SET),
    Item(ROTH, "tables 4 to 6, best epoch", "the epoch that was kept", "losses", "Best epoch"),
    Item(ROTH, "table 3", "the state of the art on Online Products with its dimensions",
         missing="values of other works, none of them trained by the source: not in our tables"),
    Item(ROTH, "tables 7 to 9", "samplers by objective and metric", "samplers", "By metric",
         ONE_SET),
    Item(ROTH, "figure 2", "relative performance by batch size, decay, dimension, preprocessing, "
         "architecture", "parameters", "Which factor counts", FILE),
    Item(ROTH, "figure 3", "relative performance of samplers", "samplers", "Relative performance"),
    Item(ROTH, "figure 4", "correlation of metrics", "correlation", "Metrics go together"),
    Item(ROTH, "figure 5", "structure of the training embeddings against recall", "correlation",
         "Training embeddings and recall"),
    Item(ROTH, "figure 6", "toy image, diagonal", "toy", "Diagonal data"),
    Item(ROTH, "figure 7", "recall@1 against the chance of a switch", "rho",
         "By the chance of a switch"),
    Item(ROTH, "figures 8 and 10", "singular values, of all items and per class, with and without",
         "rho", "Spectra"),
    Item(ROTH, "supplement B", "spectral decay against recall with and without the switch", "rho",
         "Decay and recall"),
    Item(ROTH, "tables 2 and 4 to 6, R- rows", "gains of the switch", "rho", "Gains"),
    Item(ROTH, "figure 11", "toy image, the other direction", "toy", "Vertical data",
         "its coordinates are not printed: ours are near them"),
    Item(ROTH, "figure 12", "mixup: recall", "mixup", "Recall"),
    Item(ROTH, "figure 12, spectra", "mixup: singular values, of all items and per class", "mixup",
         "Spectra"),
    Item(JACOB, "tables 1 and 2", "three losses and an ensemble, alone, with HORDE, with all "
         "orders, at every rank", "horde", "Losses and ensemble", f"{FILE}; all orders of the "
         "ensemble are not measured; other works' rows are not run"),
    Item(JACOB, "tables 3 to 5", "orders trained by order tested at ranks 1, 2, 4, 8", "horde",
         "Orders trained by order tested"),
    Item(JACOB, "figure 1", "t-SNE of representations and deep features on MNIST", "horde",
         "Local features", "their network is not described: a small one with a map of 36 places",
         "path/to/mnist"),
    Item(JACOB, "figure 3", "what queries retrieve with and without HORDE", "horde",
         "Losses and ensemble", "on the pages of the two runs: unseen study report --pages "
         "published/cub200-full/studies/horde_orders"),
    Item(PSOMAS, "chapter 2", "linear metrics, and what they cannot do", "classical", "Metrics",
         "the thesis prints no scores of them"),
    Item(PSOMAS, "tables 6 to 10, 20 and 21", "ten losses by dimension and network at every rank",
         "thesis", "Ranks, dimensions, networks", FILE),
    Item(PSOMAS, "figure 27", "recall at ranks by loss at 128 dimensions", "thesis",
         "Ranks, dimensions, networks"),
    Item(PSOMAS, "figures 28 to 30", "recall@1 against dimension for each network", "thesis",
         "Ranks, dimensions, networks", FILE),
    Item(PSOMAS, "figure 31", "recall@1 by network at 512 dimensions", "thesis",
         "Ranks, dimensions, networks", FILE),
    Item(PSOMAS, "table 11", "a tournament over twelve experiments", "thesis", "Tournament", FILE),
    Item(PSOMAS, "tables 12 and 13", "ten folds: mean and deviation, and each of them", "thesis",
         "Cross validation by class", "folds are drawn anew: theirs are not listed"),
    Item(PSOMAS, "table 14", "shares of validation classes", "thesis", "Validation ratios"),
    Item(PSOMAS, "tables 15 and 16", "search by coordinates of three losses", "thesis",
         "Coordinate search", "gamma on the grid of tens that it prints, which lacks its 58"),
    Item(PSOMAS, "tables 17 to 19", "the author's own loss beside all ten", "thesis",
         "The author's own losses", f"{FILE}, else ResNet-50; {ONE_SET}"),
    Item(PSOMAS, "figure 18", "a batch made of an image and its hard neighbours in the whole set",
         missing="no run: the sampler is in the catalogue (hard_neighbors), the figure is a batch"),
)  # fmt: skip


def of(study: str) -> list[Item]:
    """The tables and figures that a published study shows."""
    return [item for item in ITEMS if item.study == study]


def item_table(items: Sequence[Item] = ITEMS) -> Table:
    """Item, command, what differs."""
    rows = [
        [i.source, i.item, i.shows, i.command, i.section or NONE, i.missing or NONE] for i in items
    ]
    heads = ["source", "item", "what it shows", "command", "section of the page"]
    return Table([*heads, "what is missing, and why"], rows)


def claim_table() -> Table:
    """Every measurable claim of the sources, with the study that answers it."""
    answered = {name: study for study in names() for name in find(study).answers}
    rows = []
    for row in table("claims"):
        study = answered.get(str(row["name"]), "")
        cells = [str(row[key]) for key in ("name", "source", "where", "claim", "published")]
        rows.append([*cells, f"unseen study published {study}" if study else NONE])
    return Table(["claim", "source", "where", "what it says", "published", "command"], rows)


def set_up_table() -> Table:
    """Where the runs of every study differ from its source's, by budget: read off its plans, run by
    run."""
    rows = []
    for name in dict.fromkeys(item.study for item in ITEMS if item.study):
        study = find(name)
        for data, budget in (("cub200", "full"), ("cars196", "full"), ("cub200", "quick")):
            ask = Ask(data, budget, seeds=1)  # type: ignore[arg-type]
            if study.origin is not None:
                result = study.setting_differences(ask, None)
                rows.append([name, data, budget, " ".join(result) or "nothing"])
    return Table(["study", "data", "budget", "what differs from the source"], rows)


def markdown() -> str:
    """docs/sources.md"""
    lines = [
        "# Tables, figures and claims of the sources",
        "",
        "Every table and figure of the five sources that shows a measurement, and the command that",
        "makes it again. `unseen study published` lists them.",
        "",
        *item_table().markdown(),
        "## Claims",
        "",
        "Every claim of the texts that can be measured. A page lists those it answers, with their",
        "effects, intervals and conclusions; a claim without a command is not answered.",
        "",
        *claim_table().markdown(),
        "## What differs in the set-up",
        "",
        "Compared by the code, run by run and key by key: the configs of the planned runs with the",
        "values of the source (`unseen/reproductions/source_values.py`), then what the source",
        "leaves open or its code does otherwise. `--budget full` on photographs trains what the",
        "source trains; it was never executed on CUDA here. *As the data say* is resolved when the",
        "data are seen, and then stands on the page of the study, with what was really trained.",
        "",
        *set_up_table().markdown(),
    ]
    return "\n".join(lines)

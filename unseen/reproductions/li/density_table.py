"""Table 1 of density adaptivity: NMI and recall of its three losses with and without the term,
beside three other methods, of which lifted structure is run too."""

from collections.abc import Mapping

from unseen.reports.tables import Table
from unseen.reproductions.against_source import number
from unseen.reproductions.charts import point
from unseen.reproductions.published_study import Ask
from unseen.studies.findings import Section
from unseen.studies.results import Results

LIFTED, OTHERS = "lifted_structure", "density_others"
ROWS = {  # their name -> plan, loss and term of ours; none: published only
    "triplet": ("density", "triplet", "none"),
    LIFTED: (OTHERS, LIFTED, "none"),
    "n_pair": ("density", "n_pair", "none"),
    "clustering": None,
    "contrastive": ("density", "contrastive", "none"),
    "hdc": None,
    "da_triplet": ("density", "triplet", "density"),
    "da_n_pair": ("density", "n_pair", "density"),
    "da_contrastive": ("density", "contrastive", "density"),
}


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those of the table."""
    return (1, 10, 100, 1000) if ask.published_data == "online_products" else (1, 2, 4, 8)


def section(
    results: Mapping[str, Results], theirs: Mapping[str, Mapping[str, float]], ask: Ask
) -> Section:
    metrics = ["nmi", *(f"recall@{k}" for k in ranks(ask))]
    heads = ["method"]
    for metric in metrics:
        heads += [f"{metric.replace('recall', 'R').replace('nmi', 'NMI')} %", "published"]
    rows = []
    for name, ours in ROWS.items():
        cells = []
        for metric in metrics:
            value = None
            if ours is not None and ours[0] in results:
                plan, loss, term = ours
                value = point(0, results[plan].of(loss, term), metric).value
            cells += [number(value), number(theirs.get(name, {}).get(metric))]
        rows.append([name.replace("da_", "density, "), *cells])
    not_run = [name for name, ours in ROWS.items() if ours is None]
    message = f"{' and '.join(not_run)} are not in the catalogue: their published values only."
    return Section("Table 1", [message], [Table(heads, rows)])

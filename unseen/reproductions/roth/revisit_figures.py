"""Values that Roth et al. 2020 give in figures only, by data set and published name.

RHO                  spectral decay of the training embeddings, read off their figures to 0.01
METRIC_CORRELATION   figure 4: Pearson's r of two metrics over the objectives without the switch
SPACE_CORRELATION    figure 5: Pearson's r of recall@1 with measures of the training embeddings
"""

from unseen.reproductions.numbers import table

Figure = dict[str, dict[str, float]]


def _of(figure: str) -> Figure:
    result: Figure = {}
    for row in table("revisit_figures"):
        if row["figure"] == figure and isinstance(row["value"], float):
            result.setdefault(str(row["dataset"]), {})[str(row["of"])] = row["value"]
    return result


RHO, SPACE_CORRELATION = _of("rho"), _of("space")
METRIC_CORRELATION = {
    data: {(pair.split()[0], pair.split()[1]): r for pair, r in known.items()}
    for data, known in _of("metrics").items()
}

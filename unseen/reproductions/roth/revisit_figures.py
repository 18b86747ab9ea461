"""Values that Roth et al. 2020 give in figures only, by data set and published name.

RHO                  spectral decay of the training embeddings, read off their figures to 0.01
METRIC_CORRELATION   figure 4: Pearson's r of two metrics over the objectives without the switch
SPACE_CORRELATION    figure 5: Pearson's r of recall@1 with measures of the training embeddings
"""

RHO: dict[str, dict[str, float]] = {
    "cub200": {
        "R-Margin (D, beta = 1.2, p = 0.35)": 0.13,
        "Multisimilarity": 0.155,
        "R-Contrastive (D, p = 0.4)": 0.17,
        "Margin (D, beta = 1.2)": 0.18,
        "R-Margin (D, beta = 0.6, p = 0.4)": 0.20,
        "ProxyNCA": 0.21,
        "Softmax": 0.21,
        "Angular": 0.23,
        "ArcFace": 0.24,
        "R-Triplet (D, p = 0.4)": 0.25,
        "R-SNR (D, p = 0.3)": 0.26,
        "Triplet (D)": 0.30,
        "SNR (D)": 0.30,
        "SoftTriple": 0.30,
        "Margin (D, beta = 0.6)": 0.31,
        "Npair": 0.32,
        "Contrastive (D)": 0.32,
        "Quadruplet (D)": 0.37,
        "Triplet (S)": 0.37,
        "Histogram": 0.38,
        "Triplet (H)": 0.39,
        "GenLifted": 0.46,
        "Triplet (R)": 0.46,
    },
    "cars196": {"Multisimilarity": 0.16, "Triplet (R)": 0.54, "GenLifted": 0.555},
    "online_products": {
        "ArcFace": 0.02,
        "Softmax": 0.02,
        "Margin (D, beta = 1.2)": 0.06,
        "Multisimilarity": 0.09,
        "Margin (D, beta = 0.6)": 0.32,
        "Triplet (R)": 0.46,
        "Contrastive (D)": 0.51,
    },
}
_PAIRS = (
    ("recall@1", "recall@2"), ("recall@1", "recall@4"), ("recall@1", "nmi"), ("recall@1", "f1"),
    ("recall@1", "revisit_map"), ("nmi", "f1"), ("nmi", "revisit_map"),
)  # fmt: skip
METRIC_CORRELATION: dict[str, dict[tuple[str, str], float]] = {
    data: dict(zip(_PAIRS, values, strict=True))
    for data, values in {
        "cub200": (0.98, 0.93, 0.86, 0.83, 0.76, 0.99, 0.50),
        "cars196": (1.00, 0.99, 0.92, 0.91, 0.85, 0.99, 0.71),
        "online_products": (1.00, 1.00, 0.94, 0.94, 0.99, 1.00, 0.97),
    }.items()
}
SPACE_CORRELATION: dict[str, dict[str, float]] = {
    "cub200": {"intra": 0.25, "inter": -0.16, "ratio": 0.79, "rho": -0.80},
    "cars196": {"intra": 0.39, "inter": -0.08, "ratio": 0.65, "rho": -0.85},
    "online_products": {"intra": 0.36, "inter": 0.17, "ratio": 0.22, "rho": -0.63},
}

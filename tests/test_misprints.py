"""Where a source prints something else than it means, the file that follows the meaning says so."""

import re

import pytest

from unseen.core import registry

ROTH = {  # equation -> who corrects it
    "1": ("losses", "contrastive"),
    "3": ("losses", "generalized_lifted"),
    "4": ("losses", "n_pair"),
    "5": ("losses", "angular"),
    "6": ("losses", "arcface"),
    "10": ("losses", "margin"),
    "11": ("losses", "multi_similarity"),
    "13": ("losses", "proxy_nca"),
    "14": ("losses", "quadruplet"),
    "15": ("losses", "snr"),
    "16": ("losses", "soft_triple"),
    "18": ("losses", "soft_triple"),
    "19": ("losses", "normalized_softmax"),
    "20": ("miners", "semi_hard"),
    "21": ("miners", "soft_hard"),
    "22": ("miners", "soft_hard"),
    "23": ("miners", "distance_weighted"),
    "24": ("miners", "distance_weighted"),
    "27": ("metrics", "nmi"),
    "28": ("metrics", "f1"),
    "29": ("metrics", "revisit_hit_rate"),
}
PSOMAS = {
    "2.20": ("miners", "semi_hard"),
    "2.22": ("losses", "n_pair"),
    "2.23": ("losses", "margin"),
    "2.30": ("losses", "soft_triple"),
    "2.32": ("losses", "proxy_anchor"),
    "6.1": ("losses", "proxy_repulsion"),
}


@pytest.mark.parametrize(("number", "method"), [*ROTH.items(), *PSOMAS.items()])
def test_a_corrected_misprint_is_documented(number: str, method: tuple[str, str]) -> None:
    message = registry.text(*method).partition("quation")[2]  # what follows the word
    assert number in re.split(r"[^\d.]+", message)

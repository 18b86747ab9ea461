"""Several data sets as one: items, classes and marks of each stay what they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.config import find_data
from unseen.config import schema as configs
from unseen.core.contracts import Dataset, IdentifiedDataset, annotations_of, domains_of
from unseen.data.domains import Domains


def features(path: Path, classes: int, size: int = 3, **more: Any) -> Path:
    labels = np.repeat(np.arange(classes), 4)
    rows = np.random.default_rng(classes).normal(size=(len(labels), size)).astype(np.float32)
    names = np.array(["owl", "hawk", *(f"c{c}" for c in range(2, classes))])
    np.savez(path, features=rows, labels=labels, label_names=names, **more)
    return path


def test_items_and_classes_of_each_stay_what_they_were(tmp_path: Path) -> None:
    groups = np.arange(24) // 3
    one = features(tmp_path / "birds.npz", 6, groups=groups)
    two = features(tmp_path / "cars.npz", 4, is_query=np.arange(16) % 2 == 0)
    part = configs.make({"data": [str(one), str(two)]}).data
    made = find_data.open_data(part)
    parts = [
        find_data.open_data(configs.make({"data": find_data.data_table(str(p))}).data)
        for p in (one, two)
    ]
    assert isinstance(made, Dataset)
    assert isinstance(made, IdentifiedDataset)
    assert (len(made), len(made.label_names)) == (40, 10)
    assert made.label_names[0] == "birds/owl"
    assert made.label_names[6] == "cars/owl"  # the same word, another class
    assert np.array_equal(made.labels[24:], parts[1].labels + 6)
    assert np.array_equal(made.features[24:], parts[1].features)  # type: ignore[attr-defined]
    tested = [*parts[0].official_test_classes, *(parts[1].official_test_classes + 6)]  # type: ignore[operator,misc]
    assert made.official_test_classes is not None
    assert made.official_test_classes.tolist() == tested
    assert len(set(made.item_ids())) == 40
    assert made.item_ids()[24] == f"cars/{parts[1].item_ids()[0]}"  # type: ignore[attr-defined]
    marks = annotations_of(made)
    assert marks.query is not None
    assert marks.query[:24].all()
    assert marks.query[24:].tolist() == [True, False] * 8
    assert marks.ignore_groups is not None
    assert np.array_equal(marks.ignore_groups[:24], groups)
    assert (marks.ignore_groups[24:] == -1).all()
    domains = domains_of(made)
    assert domains is not None
    assert domains.tolist() == [0] * 24 + [1] * 16
    assert domains_of(parts[0]) is None


def test_words_configs_and_mistakes(tmp_path: Path) -> None:
    one, two = features(tmp_path / "a.npz", 4), features(tmp_path / "b.npz", 4, size=5)
    table = find_data.data_table(f"{one},{two}")
    assert table == {"name": "domains", "roots": [str(one), str(two)]}
    config = configs.make({"data": table})
    assert config.sampler.name == "by_domain"
    assert configs.make({"data": table, "sampler": "random"}).sampler.name == "random"
    with pytest.raises(ValueError, match="these hold 3 features and 5 features"):
        find_data.open_data(config.data)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        find_data.data_table(f"{one},nowhere")
    with pytest.raises(ValueError, match="two or more different data sets"):
        Domains([str(one)], open_root=pytest.fail)


def test_equal_names_are_distinguished_and_halves_are_drawn_once(tmp_path: Path) -> None:
    class Plain:
        def __init__(self, name: str) -> None:
            self.name, self.labels = name, np.repeat(np.arange(6), 2)
            self.label_names = [f"c{c}" for c in range(6)]
            self.official_test_classes = None

        def __len__(self) -> int:
            return 12

        def image(self, index: int) -> tuple[str, int]:
            return self.name, index

        def fingerprint(self) -> str:
            return self.name

    def opened(root: str) -> Any:
        return Plain(Path(root).name)

    made = Domains(["x/photos", "y/photos"], opened)
    assert made.domain_names == ["x-photos", "y-photos"]
    assert made.image(13) == ("photos", 1)  # type: ignore[comparison-overlap]
    tested = made.official_test_classes
    assert [(tested < 6).sum(), (tested >= 6).sum()] == [3, 3]
    assert np.array_equal(tested, Domains(["x/photos", "y/photos"], opened).official_test_classes)
    assert len(made.digests()) == 24
    assert made.describe()["domains"] == 2

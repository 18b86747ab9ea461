"""Every recipe is a config that holds, says what it is, and trains."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.cli.main import app
from unseen.config import build
from unseen.config import schema as configs
from unseen.reproductions.roth import objectives
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.studies import study_file
from unseen.training.run_folder import RunFolder

FOLDER = Path(__file__).parent.parent / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
STUDIES = sorted((FOLDER / "studies").glob("*.toml"))
SOURCES = ("revisit", "thesis", "horde", "density", "vo_hays")


def test_every_source_has_a_recipe() -> None:
    names = [path.stem for path in RECIPES]
    assert all(any(name.startswith(source) for name in names) for source in SOURCES)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_holds_and_explains_itself(path: Path) -> None:
    config = configs.make(configs.load(path))
    assert config == configs.make(configs.parse(config.to_toml()))
    head = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    assert f"unseen train recipes/{path.name} data.root=" in head
    assert "# Measured" in head or ("Published" in head and "Not measured here" in head)


def test_the_switch_of_a_recipe_is_the_one_its_published_score_is_for() -> None:
    text = (FOLDER / "revisit_cub_resnet50.toml").read_text()
    result = re.search(r"loss.beta=([\d.]+) miner.switch=([\d.]+):.*published: ([\d.]+)\)", text)
    assert result is not None
    name = f"R-Margin (D, beta = {result[1]}, p = {result[2]})"
    assert objectives.published("cub200")[name]["recall@1"] == float(result[3])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_holds_and_explains_itself(path: Path) -> None:
    assert study_file.load(path).configurations()
    assert f"unseen study run recipes/studies/{path.name} --out" in path.read_text()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 classes of 12 small images, each class with its own colour."""
    root, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for label in range(12):
        (root / f"{label:02d}").mkdir()
        for number in range(12):
            color = rng.integers(0, 60, (40, 48, 3)) + 16 * label
            Image.fromarray(color.astype(np.uint8)).save(root / f"{label:02d}/{number}.png")
    return root


def train_two_steps(path: Path, images: Path, out: Path) -> None:
    values = configs.load(path)
    values["data"] = {"name": "folder", "root": str(images)}
    small = {"batch_size": 8, "image_size": 32, "epochs": 2}
    sizes = {"training_sizes": [32]}
    values["stages"] = [
        stage | small | (sizes if "training_sizes" in stage else {})
        for stage in values.get("stages", [])
    ]
    per_class = configs.make(values).sampler.preset
    batch = {"density": 20, "horde": 16, "thesis": 10}.get(per_class or "", 8)
    words = ["weights=none", "image_size=32", f"batch_size={batch}", "sampler.steps=1"]
    words += ["epochs=2", "workers=0", 'metrics=["recall@1"]', "threads=1", "refit=false"]
    words += ["schedule.warm_up=1"] if "warm_up" in str(values.get("schedule")) else []
    config = configs.make(configs.override(values, words))
    train_and_evaluate(prepare(config), out, "test")
    assert RunFolder(out).is_finished


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains_two_steps(path: Path, images: Path, tmp_path: Path) -> None:
    train_two_steps(path, images, tmp_path)


def test_the_density_recipe_trains_two_steps(images: Path, tmp_path: Path) -> None:
    (path,) = (path for path in RECIPES if path.stem.startswith("density"))
    train_two_steps(path, images, tmp_path)


def test_learning_rates_follow_the_thesis(images: Path) -> None:
    (path,) = (path for path in RECIPES if path.stem.startswith("thesis"))
    rate = build.schedule(configs.make(configs.load(path)), steps_per_epoch=10)
    assert [rate(step) for step in (0, 49, 50, 100)] == pytest.approx([1, 1, 0.1, 0.01])


def test_a_recipe_is_the_first_word_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[configs.Config] = []
    monkeypatch.setattr("unseen.cli.train.run", lambda config, *_: started.append(config))
    app(["train", str(RECIPES[0]), "data.root=elsewhere", "seed=3"], standalone_mode=False)
    (config,) = started
    recipe = configs.make(configs.load(RECIPES[0]))
    assert config.data.values["root"] == "elsewhere"
    assert (config.training.seed, config.loss, config.optimizer.lr) == (
        3,
        recipe.loss,
        recipe.optimizer.lr,
    )

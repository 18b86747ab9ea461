"""Commands work on small data; a user's mistake gets one line of advice and exit code 2."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main
from unseen.cli.run_display import print_data_notes
from unseen.cli.user_errors import guarded
from unseen.config import schema as configs
from unseen.core.extras import install_command
from unseen.core.reason import Reason
from unseen.runs.prepare import prepare
from unseen.studies import study_file as plans
from unseen.studies.worker import Worker

TINY = [
    "data.max_classes=16",
    "data.size=16",
    "epochs=2",
    "batch_size=16",
    "embedding_size=16",
    "workers=0",
]


def unseen(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output, errors of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes of six images: a colour each, with noise."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for c in range(8):
        (root / f"class {c}").mkdir()
        color = generator.integers(0, 255, 3)
        for i in range(6):
            noisy = np.clip(color + generator.normal(0, 20, (48, 40, 3)), 0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(root / f"class {c}" / f"{i}.png")
    return root


def test_train_evaluate_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, text, _ = unseen(capsys, "train", "glyphs", *TINY, "--out", str(out))
    assert code == 0
    assert text.startswith("reading the data\nglyphs: ")  # no empty line before them
    assert "R@1" in text
    result = (out / "result.json").read_bytes()
    manifest = json.loads((out / "manifest.json").read_text())
    assert [read["purpose"] for read in manifest["test_reads"]] == ["final evaluation"]
    assert (out / "report" / "index.html").exists()

    code, text, _ = unseen(capsys, "train", "glyphs", *TINY, "--out", str(out))
    assert code == 0
    assert "finished" in text
    code, _, message = unseen(capsys, "train", "glyphs", *TINY, "lr=0.5", "--out", str(out))
    assert code == 2
    assert "other settings (lr)" in message

    code, _, _ = unseen(capsys, "evaluate", "run", str(out))
    assert code == 0
    assert (out / "result.json").read_bytes() == result
    assert len(json.loads((out / "manifest.json").read_text())["test_reads"]) == 2
    assert unseen(capsys, "report", str(out))[0] == 0


def test_a_folder_of_images_trains_without_further_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, images: Path
) -> None:
    words = ["train", str(images), "epochs=1", "--out", str(tmp_path / "run")]
    code, text, _ = unseen(capsys, *words)
    assert code == 0, text
    assert "batch_size" in text  # the reason of an automatic choice
    assert json.loads((tmp_path / "run" / "result.json").read_text())["data"]["classes"] == 8


def test_a_table_of_images_trains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, images: Path
) -> None:
    """Queries, gallery and a further label through the whole command."""
    lines = ["path,label,split,is_query,is_gallery,colour"]
    for c in range(8):
        for i in range(6):
            part = f"test,{i < 2},{i >= 2}" if c >= 4 else "train,,"
            lines.append(f"{images}/class {c}/{i}.png,c{c},{part},{'light' if c % 2 else 'dark'}")
    (tmp_path / "my.csv").write_text("\n".join(lines))
    out = tmp_path / "run"
    words = ["epochs=1", 'relevance.by=["colour"]', "--out", str(out)]
    code, text, errors = unseen(capsys, "train", str(tmp_path / "my.csv"), *words)
    assert code == 0, errors
    assert "trained network by colour" in text
    result = json.loads((out / "result.json").read_text())
    assert result["split"]["query_items"] == 8
    assert result["scores"]["trained"]["counts"]["gallery"] == 16
    assert unseen(capsys, "report", str(out))[0] == 0


def test_a_folder_becomes_a_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, images: Path
) -> None:
    file = tmp_path / "images.csv"
    code, text, errors = unseen(capsys, "data", "table", str(images), "--out", str(file))
    assert code == 0, errors
    assert "48 images" in text
    lines = file.read_text().splitlines()
    assert lines[0] == "label,path,split,is_query,is_gallery"
    assert sum(",validation,True,True" in line for line in lines) == 24


def test_features_of_images_train_a_head(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, images: Path
) -> None:
    file = tmp_path / "f.npz"
    words = ["backbone=small_conv", "--out", str(file), "pooling=max"]
    code, text, errors = unseen(capsys, "data", "features", str(images), *words)
    assert code == 0, errors
    assert "48 items" in text
    code, _, errors = unseen(capsys, "train", str(file), "epochs=1", "--out", str(tmp_path / "run"))
    assert code == 0, errors
    code, _, errors = unseen(capsys, "data", "features", str(file), "--out", str(file))
    assert code == 2
    assert "holds features already" in errors


def test_a_file_of_features_trains_a_head(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    features = rng.normal(size=(12, 16))[labels] + 0.5 * rng.normal(size=(72, 16))
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    out = tmp_path / "run"
    code, text, errors = unseen(
        capsys, "train", str(tmp_path / "features.npz"), "epochs=2", "--out", str(out)
    )
    assert code == 0, errors
    assert "only a head is trained" in text
    assert "features as given" in text
    result = (out / "result.json").read_bytes()
    assert unseen(capsys, "evaluate", "run", str(out))[0] == 0
    assert (out / "result.json").read_bytes() == result
    page = (out / "report" / "index.html").read_text()
    assert "features as given" in page
    assert 'src="data:image' not in page
    assert unseen(capsys, "report", str(out))[0] == 0


def test_other_settings_go_to_the_next_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for epochs in ("epochs=1", "epochs=2", "epochs=1"):
        assert unseen(capsys, "train", "glyphs", *TINY, "sampler.steps=1", epochs)[0] == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["glyphs-multi_similarity-seed0", "glyphs-multi_similarity-seed0-epochs2"]


def test_a_value_a_method_refuses_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["train", "glyphs", *TINY, "loss.alpha=-1.0", "--out", str(tmp_path / "run")]
    code, _, message = unseen(capsys, *words)
    assert code == 2
    assert "alpha and beta must be positive" in message or "above 0" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "/no/such/folder"], "/no/such/folder"),
        (
            ["train", "glyps"],
            "no such file or folder: glyps, and no data set of that name: did you ",
        ),
        (["data", "check", "nowhere"], "no data set of that name: choose from: "),
        (["train", "brids.csv"], "no such file or folder: brids.csv\n"),
        (["train", "cub200"], "data.root=PATH"),
        (["train", "/no/such/table.csv"], "no such file"),
        (["train", "glyphs", "loss=marginn"], "did you mean margin"),
        (["train", "glyphs", "epoch=3"], "did you mean epochs"),
        (["train", "glyphs", "backbone=resnet18"], "timm:resnet18"),
        (["train", "/no/such.toml"], "no such config file"),
        (["evaluate", "run", "/no/such/run"], "is not a run"),
        (["report", "/no/such/run"], "is not a run"),
        (["catalogue", "loses"], "did you mean losses"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    code, _, errors = unseen(capsys, *words)
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train phtos", "photos"),
        ("train ./phtos", "photos"),
        ("train recip.toml", "recipe.toml"),
        ("data check phtos", "photos"),
        ("data features images.cvs --out x.npz", "images.csv"),
        ("evaluate run runs/brids", "runs/birds"),
        ("evaluate embeddings images.cvs", "images.csv"),
        ("evaluate embeddings vectrs.npy", "vectors.npy"),
        ("inspect diagnose runs/brids", "runs/birds"),
        ("evaluate compare runs/brids runs/birds", "runs/birds"),
        ("report rums/birds", "runs/birds"),
        ("inspect layers runs/brids", "runs/birds"),
        ("inspect replay runs/birds/broken_stp.pt", "runs/birds/broken_step.pt"),
        ("study report stduy", "study"),
        ("embed runs/brids photos --out x.npy", "runs/birds"),
        ("index build runs/brids photos --out x", "runs/birds"),
        ("index add brids.index photos", "birds.index"),
        ("search brids.index photos/1.jpg", "birds.index"),
        ("index cluster brids.index", "birds.index"),
        ("calibrate runs/brids", "runs/birds"),
        ("export runs/brids --onnx x.onnx", "runs/birds"),
    ],
)
def test_a_misspelt_path_names_the_near_one(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    meant: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "runs/birds", "birds.index", "study"):
        Path(folder).mkdir(parents=True)
    for file in ("images.csv", "vectors.npy", "recipe.toml", "runs/birds/broken_step.pt"):
        Path(file).touch()
    code, _, errors = unseen(capsys, *words.split())
    assert (code, errors.strip().splitlines()[1:]) == (2, [])
    assert f"; did you mean {meant}?" in errors


def test_a_folder_of_text_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for c in "abcd":
        (tmp_path / c).mkdir()
        (tmp_path / c / "notes.txt").write_text("words")
    code, _, errors = unseen(capsys, "train", str(tmp_path))
    assert code == 2
    assert len(errors.strip().splitlines()) == 1


def test_the_catalogue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "margin" in unseen(capsys, "catalogue")[1]
    assert "Wu et al." in unseen(capsys, "catalogue", "losses", "margin")[1]
    assert "distance_weighted" in unseen(capsys, "catalogue", "miners")[1]


def test_the_module_runs() -> None:
    words = [sys.executable, "-m", "unseen", "no-such-command"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_layers_of_a_run_and_of_a_backbone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text, _ = unseen(capsys, "inspect", "layers", "small_conv")
    assert code == 0
    assert [line.split() for line in text.splitlines() if "pooled" in line] == [
        ["pooled", "256", "256", "0.5", "kB"]
    ]
    assert "64 x 10 x 10" in text
    out = tmp_path / "run"
    unseen(capsys, "train", "glyphs", *TINY, "head.hidden=[8]", "epochs=1", "--out", str(out))
    code, text, _ = unseen(capsys, "inspect", "layers", str(out), "--all")
    assert code == 0
    assert "head.fc1" in text
    assert unseen(capsys, "inspect", "layers", str(tmp_path))[0] == 2
    assert "did you mean" in unseen(capsys, "inspect", "layers", "small_con")[2]


def test_a_study_runs_and_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work_here(watcher: Worker, storage: str, grace: int, *rest: object) -> None:
        Worker(plans.parse(watcher.plan.to_toml()), storage, watcher.out, grace).work()

    # the processes of a study have tests of their own
    monkeypatch.setattr("unseen.studies.engine._supervise", work_here)
    file = tmp_path / "losses.toml"
    file.write_text(
        'name = "losses"\nseeds = [0]\n[config]\n'
        'data = {name = "glyphs", max_classes = 24, size = 16}\n'
        'epochs = 1\nbatch_size = 16\nmetrics = ["recall@1"]\n'
        'sampler = {name = "m_per_class", steps = 1}\n'
        '[factors]\nloss = ["margin", "triplet"]\n'
    )
    out = tmp_path / "study"
    words = ("study", "run", str(file), "--out", str(out), "--jobs", "1")
    code, text, errors = unseen(capsys, *words)
    assert code == 0, errors
    assert "margin" in text
    assert "untrained network" in text
    assert (out / "report" / "index.html").exists()
    code, text, _ = unseen(capsys, "study", "report", str(out), "--pages")
    assert code == 0
    assert len(list(out.glob("runs/*/report/index.html"))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study", "run", "/no/such.toml", "--out", "x"], "no such"),
        (["study", "report", "/no/such"], "is no study"),
        (["study", "work", "x", "--storage", "sqlite:////no/x.db", "--out", "y"], "storage"),
        (["study", "work", "x", "--storage", "somewhere", "--out", "y"], "storage"),
        (
            ["study", "work", "x", "--storage", "sqlite:////no/x.db", "--out", "y", "--collect"],
            "storage",
        ),
    ],
)
def test_mistakes_with_studies(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, _, errors = unseen(capsys, *words)
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_list_of_commands_needs_no_torch() -> None:
    code = "import sys, unseen.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_is_there_with_an_example(name: str) -> None:
    result = main.loaded(name)
    texts = [result.help] + [each.help for each in getattr(result, "commands", {}).values()]
    assert any(f"Example: unseen {name}" in (text or "") for text in texts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "no command 'trian': did you mean train"),
        (["train"], "data"),
        (["train", "glyphs", "--otu", "x"], "--out"),
        (["index", "biuld"], "build"),
        (["data", "show", "photos", "--images", "many"], "--images"),
    ],
)
def test_words_that_are_not_understood_get_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, text, errors = unseen(capsys, *words)
    assert (code, text) == (2, "")
    assert errors.startswith("unseen: ")
    assert message in errors
    assert errors.endswith(" --help` says more)\n")
    assert errors.count("\n") == 1


def test_a_published_study_that_is_misspelt(capsys: pytest.CaptureFixture[str]) -> None:
    _, listed, _ = unseen(capsys, "study", "--help")
    assert "published" in listed
    code, _, message = unseen(capsys, "study", "published", "losse")
    assert code == 2
    assert "losses" in message


@pytest.mark.parametrize("words", [[], ["index"], ["study"], ["data"], ["evaluate"], ["inspect"]])
def test_no_words_get_help(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, text, errors = unseen(capsys, *words)
    assert (code, errors) == (2, "")
    assert "Example: unseen" in text


def test_advice_keeps_its_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    context = prepare(configs.make(configs.override({}, TINY)))
    reason = Reason("backbone", "", "pip install '.[pretrained]'")
    print_data_notes(replace(context, reasons=[reason]))
    assert "'.[pretrained]'" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_named_in_a_line(
    capsys: pytest.CaptureFixture[str], device: str
) -> None:
    code, _, errors = unseen(capsys, "train", "glyphs", *TINY, f"device={device}")
    assert (code, errors.count("\n")) == (2, 1)
    assert f"device={device} cannot be used here" in errors
    assert "device=auto, which takes a GPU where there is one" in errors


def test_a_missing_package_names_its_extra(capsys: pytest.CaptureFixture[str]) -> None:
    def serve() -> None:
        raise ModuleNotFoundError("No module named 'fastapi.responses'", name="fastapi.responses")

    with pytest.raises(SystemExit) as ended:
        guarded(serve)
    assert ended.value.code == 2
    assert f"this needs fastapi: {install_command('search')}" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):  # ours to mend, not the user's
        guarded(lambda: __import__("no_such_package_at_all"))


@pytest.mark.parametrize("name", ["", *main.COMMANDS])
def test_help_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing is cut, an example comes first, whole, and flags, which take no value, show no
    type."""
    monkeypatch.setenv("COLUMNS", "80")
    commands = getattr(main.loaded(name), "commands", {}) if name else {}
    for words in [[name] if name else [], *([name, each] for each in commands)]:
        code, text, _ = unseen(capsys, *words, "--help")
        assert code == 0
        assert "…" not in text
        assert "<bool>" not in text
        _usage, example, _rest = re.split(r"\n *\n", text.strip(), maxsplit=2)
        assert re.fullmatch(r"Example: unseen .*", example.strip())


def test_the_list_of_commands_flows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert "code that a config, run, index or study names may run" in unseen(capsys, "--help")[1]


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_help_holds_no_markup(name: str) -> None:
    result = main.loaded(name)
    for command in [result, *getattr(result, "commands", {}).values()]:
        texts = [command.help, *(getattr(option, "help", "") for option in command.params)]
        assert not [text for text in texts if re.search(r"\[[a-z#/@]", text or "")]  # not shown


@pytest.mark.parametrize("name", ["study", "data", "index", "evaluate", "inspect"])
def test_groups_of_commands_offer_no_completion(name: str) -> None:
    options = [option for each in main.loaded(name).params for option in each.opts]
    assert "--install-completion" not in options


MOST_COMMANDS, MOST_OPTIONS, MOST_OF_STUDY, MOST_LINES = 15, 90, 5, 45


def test_commands_and_options_stay_few() -> None:
    """An option that several commands share is learnt once."""
    commands = [main.loaded(name) for name in main.COMMANDS]
    each = [one for group in commands for one in getattr(group, "commands", {"": group}).values()]
    options = {
        (option.opts[0], option.help)
        for command in each
        for option in command.params
        if option.param_type_name == "option" and option.name != "help"
    }
    assert len(commands) <= MOST_COMMANDS
    assert len(options) <= MOST_OPTIONS, sorted(options)
    assert len(main.loaded("study").commands) <= MOST_OF_STUDY


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_fits_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["unseen"])  # the usage line begins with it
    for words in [[name], *([name, each] for each in getattr(main.loaded(name), "commands", {}))]:
        text = unseen(capsys, *words, "--help")[1]
        assert len(text.strip().splitlines()) <= MOST_LINES, words

"""Who is let in: tokens from a word, a file or the environment; nobody by mistake."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unseen.cli import main
from unseen.search.service import start_service

GOOD = "a-long-enough-word"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[start_service.Settings]:
    """The settings of services that would have been started."""
    started: list[start_service.Settings] = []

    def application(settings: start_service.Settings, *_: Any) -> None:
        started.append(settings)

    library = SimpleNamespace(snapshot=SimpleNamespace(index=[]))
    monkeypatch.setattr(start_service, "open_registries", lambda settings: (library, None))
    monkeypatch.setattr(start_service, "application", application)
    monkeypatch.setattr(start_service, "run", lambda *_, **__: None)
    monkeypatch.delenv("UNSEEN_TOKEN", raising=False)
    return started


def serve(*words: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", "serve", "my.index", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("word", ["", " ", "short", "with a space in it", "semi;colon;semi;colon"])
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_empty_short_and_odd_tokens_are_refused(
    host: str, word: str, served: list[start_service.Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve("--host", host, "--token", word) == 2
    assert "12 letters" in " ".join(capsys.readouterr().err.split())
    assert served == []


@pytest.mark.parametrize("words", [["--host", "0.0.0.0"], ["--proxy", "127.0.0.1"]])
def test_others_come_in_with_a_token_or_in_full_words(
    words: list[str], served: list[start_service.Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(*words) == 2
    assert "--no-token" in capsys.readouterr().err
    assert serve(*words, "--no-token") == 0
    assert serve(*words, "--token", GOOD) == 0
    assert [settings.token for settings in served] == [None, GOOD]


def test_a_token_from_a_file_or_the_environment(
    tmp_path: Path,
    served: list[start_service.Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{GOOD}-of-the-file\n")
    monkeypatch.setenv("UNSEEN_TOKEN", f"{GOOD}-of-the-environment")
    assert serve("--token-file", file) == 0
    assert "file" not in capsys.readouterr().out  # a token that is kept elsewhere is not printed
    assert serve() == 0
    assert serve("--no-token") == 0
    monkeypatch.setenv("UNSEEN_TOKEN", "")
    assert serve("--host", "0.0.0.0") == 2
    message = [settings.token for settings in served]
    assert message == [f"{GOOD}-of-the-file", f"{GOOD}-of-the-environment", None]
    file.write_text("\n")
    assert serve("--token-file", file) == 2
    assert serve("--token-file", tmp_path / "none") == 2


def test_two_tokens_are_one_too_many(
    served: list[start_service.Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve("--token", GOOD, "--no-token") == 2
    assert "one of" in capsys.readouterr().err


def test_a_new_token_is_made_up_and_printed(
    served: list[start_service.Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve("--host", "0.0.0.0", "--token", "new") == 0
    word = served[0].token
    assert word is not None
    assert len(word) > 20
    assert f"/?token={word}" in capsys.readouterr().out

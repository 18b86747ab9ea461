"""The score table says the numbers of result.json, in every form, and tolerates gaps."""

import copy
import html
import json
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from unseen.reports import score_tables
from unseen.training.json_files import parsed
from unseen.training.result import Result
from unseen.training.selected_weights import Selection

Json = dict[str, Any]


def read(result: Json) -> Result:
    return parsed(Result, json.dumps(result), "result.json")


def in_terminal(result: Json, width: int) -> str:
    console = Console(markup=False, width=width, color_system=None)
    with console.capture() as capture:
        console.print(score_tables.score_table(read(result)))
    return capture.get()


def test_terminal_table_fits_and_says_the_numbers(result: Json) -> None:
    text = in_terminal(result, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = [line for line in text.splitlines() if line.startswith("│")]
    trained, interval, averaged, untrained, _, pixels, _ = lines
    assert trained.split("│")[1:3] == [" trained network   ", " 81.2 "]
    assert interval.split("│")[2] == " ±2.0 "  # the longer side: low 2.0, high 1.0 away
    assert trained.split("│")[8].strip() == "71.2"
    assert interval.split("│")[8].strip() == ""
    assert "80.7" in averaged
    assert "34.6" in untrained
    assert "43.2" in pixels
    assert "6 unseen classes, 30 queries" in text
    assert "…" not in text


def test_markdown_table(result: Json) -> None:
    lines = score_tables.markdown_table(read(result)).splitlines()
    assert lines[0] == "| % | R@1 | R@2 | R@4 | R@8 | mAP@R | R-precision | NMI |"
    assert lines[2].startswith("| trained network | 81.2 ±2.0 | 82.3 ±2.0 |")
    assert lines[3].startswith("| mean over classes | 80.7 |")
    assert lines[5].endswith("| 33.2 |")
    assert {line.count("|") for line in lines[:6]} == {9}


def test_intervals_over_classes_are_named(result: Json) -> None:
    assert "±: 95 % interval over queries" in score_tables.markdown_table(read(result))
    result["scores"]["trained"]["interval"] = {"over": "classes", "level": 0.9, "resamples": 10}
    assert "±: 90 % interval over classes" in score_tables.markdown_table(read(result))


def test_columns_in_order_of_depth_then_the_rest(result: Json) -> None:
    metrics = result["scores"]["trained"]["metrics"]
    metrics["recall@16"] = metrics["ami"] = {"value": 0.5}
    assert score_tables.metric_names(read(result)) == [
        "recall@1", "recall@2", "recall@4", "recall@8", "recall@16",
        "map_at_r", "r_precision", "nmi", "ami",
    ]  # fmt: skip


def test_missing_numbers_rows_and_metrics(result: Json) -> None:
    del result["scores"]["pixels"]
    result["scores"]["my [b] <f>"] = {
        "metrics": {"recall@1": {"value": 0.25}, "nmi": {"value": None}}
    }
    result["scores"]["trained"]["metrics"]["recall@2"] = {"value": None, "low": None, "high": None}
    assert score_tables.row_names(read(result)) == ["trained", "untrained", "my [b] <f>"]
    assert "| my [b] <f> | 25.0 | – |" in score_tables.markdown_table(read(result))
    assert "│ my [b] <f> " in in_terminal(result, width=90)
    assert "my [b] &lt;f&gt;" in score_tables.html_table(read(result))


@pytest.mark.parametrize(
    "make", [score_tables.markdown_table, score_tables.html_table, in_terminal]
)
def test_a_choice_on_test_classes_is_marked_everywhere(result: Json, make: Any) -> None:
    honest, marked = result, copy.deepcopy(result)
    marked["selection"]["on"] = "test"
    arguments = (100,) if make is in_terminal else ()
    honest, marked = (r if make is in_terminal else read(r) for r in (honest, marked))
    assert "Chosen on test classes" not in make(honest, *arguments)
    assert "Chosen on test classes" in make(marked, *arguments)


def worse(result: dict[str, Any]) -> dict[str, Any]:
    start = {"title": "ImageNet weights, head at its start", "kind": "frozen"}
    gain = {"before": 0.908, "after": 0.8, "low": -0.15, "high": -0.06}
    return result | {"start": start, "gain": {"recall@1": gain}}


def test_a_result_below_its_start_is_said_first_and_in_red(result: dict[str, Any]) -> None:
    title = score_tables.score_table(read(worse(result))).title
    assert isinstance(title, Text)
    assert title.plain.startswith("Training made it worse: recall@1 80.0% after training, 90.8%")
    assert "red" in str(title.spans[0].style)
    assert score_tables.no_gain(read(result)) is None, "its start is not known"


def test_too_little_time_is_said_first_everywhere(result: dict[str, Any]) -> None:
    """How far training went stands under the scores; what limited it above them."""
    far = {"stage": "head", "epochs": 1, "planned": 60, "image_size": 128, "minutes": 2.0}
    cut = worse(result) | {"extent": far | {"cuts": ["1 of 60 epochs"]}}
    said = "The time budget of 2 min limited this run: 1 of 60 epochs. So far training made it"
    advice = "Give it more time first: time_budget=20."
    title = score_tables.score_table(read(cut)).title
    assert isinstance(title, Text)
    assert title.plain.startswith(said)
    assert advice in title.plain
    assert "depth=full" not in title.plain
    message = score_tables.warning_line(read(cut))
    assert message.startswith(said)
    assert message.endswith(advice)
    assert said in html.unescape(score_tables.html_table(read(cut)))
    for shown in (score_tables.markdown_table(read(cut)), in_terminal(cut, width=100)):
        assert "Stage head: 1 of 60 epochs, images of 128 px." in shown


def test_in_python_too(result: dict[str, Any]) -> None:
    message = score_tables.warning_line(read(worse(result)))
    assert message.startswith("Training made it worse: recall@1 80.0% after training, 90.8%")
    assert message in html.unescape(score_tables.html_table(read(worse(result))))
    assert score_tables.warning_line(read(result)) == ""


def test_the_start_of_a_pretrained_network_is_called_what_it_is(result: dict[str, Any]) -> None:
    for shown in (
        score_tables.markdown_table(read(worse(result))),
        score_tables.html_table(read(worse(result))),
    ):
        assert "ImageNet weights, head at its start" in shown
        assert "untrained network" not in shown
    assert "untrained network" in score_tables.markdown_table(read(result))


def test_what_a_copy_lacks_stands_below_the_scores(result: dict[str, Any]) -> None:
    said = "15 images of Cars196 (Stanford Cars) are missing (a.jpg, b.jpg, c.jpg and 12 more)."
    lacking = read(result | {"data": {"incomplete": said}})
    assert said in str(score_tables.score_table(lacking).caption)
    assert said in score_tables.markdown_table(lacking)


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"epoch": 4}, "epoch 5, the best on validation classes"),
        ({"epoch": 4, "mean_of_epochs": 3}, "by the mean of 3 epochs"),
        ({"epoch": -1}, "the start: no epoch is better on validation classes"),
        ({"epoch": 4, "fallback": "last"}, "epoch 5, the last: too few validation classes"),
    ],
)
def test_the_kept_epoch_in_words(selection: dict[str, Any], words: str) -> None:
    assert words in score_tables.selected(
        Selection("validation", "recall@1", value=0.5, classes=9, **selection)
    )


def test_classes_that_differ_in_size_are_reported(result: Json) -> None:
    for score in result["scores"]["trained"]["metrics"].values():
        score["class_average"] = score["value"]
    assert score_tables.OVER_CLASSES not in score_tables.markdown_table(read(result))
    assert score_tables.by_size(read(result)) is None
    result["scores"]["trained"]["metrics"]["recall@1"]["class_average"] = 0.5
    result["thirds"] = [
        {
            "name": name,
            "classes": 2,
            "smallest": n,
            "largest": 2 * n,
            "metrics": {"recall@1": 0.1 * n},
        }
        for name, n in (("head", 9), ("middle", 5), ("tail", 2))
    ]
    text = score_tables.markdown_table(read(result))
    assert "| mean over classes | 50.0 | 82.3 |" in text
    assert "R@1 by class size: head 90.0 (9 to 18 images a class), middle 50.0 (5 to 10" in text
    matches = score_tables.by_size(read(result))
    assert matches is not None
    assert [str(row[1]) for row in matches.rows] == ["90.0", "50.0", "20.0"]

"""The parts of a run's page as HTML. Text of users, files and labels is always escaped."""

import shlex
from html import escape
from typing import Any

from unseen.contracts import Dataset, FeatureDataset
from unseen.reports import queries, tables
from unseen.reports.queries import Found
from unseen.reports.run_folder import RunFolder, TestEmbeddings
from unseen.reports.thumbnails import tile

Json = dict[str, Any]

SEARCH_PAGE = "http://127.0.0.1:8000"  # where `unseen serve` opens unless told otherwise
NOUNS = {  # data set -> what one of its classes is, and several
    "glyphs": ("character", "characters"),
    "omniglot": ("character", "characters"),
    "cub200": ("bird species", "bird species"),
    "cars196": ("car model", "car models"),
    "online_products": ("product", "products"),
    "inshop": ("garment", "garments"),
}
MEANINGS = {
    "recall": ("R@k", "at least one of the k nearest pictures is of the query's class"),
    "map_at_r": (
        "mAP@R",
        "with R others of its class, how many of the R nearest are right, and how early",
    ),
    "r_precision": ("R-precision", "the share of right ones among those R nearest"),
    "nmi": (
        "NMI",
        "how well a blind grouping (k-means) of the test pictures agrees with their classes",
    ),
}


def headline(run: RunFolder) -> str:
    """The result in one sentence."""
    best = tables.score(run.result, "trained", "recall@1") if run.result else None
    if run.result is None or best is None:
        return f"Run {escape(run.name)} has no score yet"
    name = str(run.result.get("data", {}).get("name", ""))
    one, several = NOUNS.get(name, ("class", "classes"))
    classes = run.result.get("split", {}).get("test_classes")
    unseen = f"on {classes:,} {several} it never saw" if classes else f"on {several} it never saw"
    text = f"Finds the right {one} first in <em>{_percent(best)}</em> of queries, {unseen}"
    for row in ("pixels", "features"):
        if given := tables.score(run.result, row, "recall@1"):
            text += f"; {tables.row_title(row)}: {_percent(given)}"
    found = tables.no_gain(run.result)
    if found is None:
        return text
    return f'<span class="{found.level}">{escape(found.text)}</span> {text}'


def head_bars(result: Json) -> str:
    """Recall@1 of every row as bars with their intervals."""
    items = ""
    for row in tables.row_names(result):
        cell = tables.score(result, row, "recall@1")
        if cell is None:
            continue
        low, high = cell.get("low"), cell.get("high")
        span = ""
        if low is not None and high is not None:
            place = f"left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"
            span = f'<span class="range" style="{place}"></span>'
        items += (
            f'<li{_main(row)}><span class="name">{escape(tables.row_title(row, result))}</span>'
            f'<span class="track"><span class="fill" style="width:{100 * cell["value"]:.2f}%">'
            f'</span>{span}</span><span class="number">{_percent(cell)}</span></li>\n'
        )
    return f'<ul class="compare" aria-label="Recall at 1">\n{items}</ul>' if items else ""


def scores(result: Json) -> str:
    """The score table and how to read it."""
    counts = result["scores"][tables.row_names(result)[0]].get("counts", {})
    split = result.get("split", {})
    answering = "gallery" if "gallery_items" in split else "test classes"
    asked = "Every test picture asks for its nearest neighbours among the others"
    if "queries" in counts:
        asked = (
            f"Each of {counts['queries']:,} test pictures asks for its nearest neighbours among "
            f"the {counts.get('gallery', counts['queries']):,} of the {answering}, itself excluded"
        )
    lone = counts.get("lone_queries")
    left_out = f" {lone:,} without another picture of their class are left out." if lone else ""
    if counts.get("broken"):
        left_out += f" {counts['broken']:,} embeddings are not finite and count as wrong."
    average = (tables.score(result, "trained", "recall@1") or {}).get("class_average")
    by_class = ""
    if average is not None:
        by_class = f" Averaged over classes instead of queries, R@1 is {100 * average:.1f}&nbsp;%."
    meanings = "".join(
        f"<dt>{title}</dt><dd>{text}</dd>"
        for key, (title, text) in MEANINGS.items()
        if any(name.startswith(key) for name in tables.metric_names(result))
    )
    return (
        f"{tables.html_table(result)}"
        f"<p>{asked}; ties count against the method.{left_out} Small figures: "
        f"{escape(tables.interval(result))} (bootstrap).{by_class}</p>"
        f'<dl class="meanings">{meanings}</dl>'
    )


def training(run: RunFolder, dataset: Dataset) -> str:
    """What was trained on what, how the model was chosen, and how to remake it."""
    result = run.result or {}
    facts = _data_facts(result, dataset) | _config_facts(run.config) | _selection_facts(run)
    listed = "".join(
        f"<div><dt>{escape(title)}</dt><dd>{escape(str(value))}</dd></div>"
        for title, value in facts.items()
        if value not in (None, "")
    )
    command = run.manifest.get("command")
    remake = f"<h3>Remake it</h3><pre><code>{escape(str(command))}</code></pre>" if command else ""
    return (
        f'<dl class="facts">{listed}</dl>{remake}{_test_reads(run.manifest)}'
        f"{'' if isinstance(dataset, FeatureDataset) else search_with('.')}"
        f"<details><summary>Whole configuration and versions</summary>"
        f"<pre><code>{escape(run.config_text)}</code></pre>{_versions(run)}</details>"
    )


def search_with(run: str) -> str:
    """The way from a run, as seen from the folder the reader stands in, to the search page."""
    commands = (
        f"unseen index build {shlex.quote(run)} path/to/pictures --out pictures.index\n"
        "unseen serve pictures.index"
    )
    where = "In the run's folder: then" if run == "." else "Then"
    return (
        f"<h3>Search with it</h3><pre><code>{escape(commands)}</code></pre>"
        f'<p>{where} open <a href="{SEARCH_PAGE}">the search page</a>; '
        "<code>--compare other.index</code> shows what changed between two runs.</p>"
    )


def retrieval(test: TestEmbeddings, found: Found, dataset: Dataset) -> str:
    """Queries with their nearest neighbours, in three tabs."""
    views = {
        "Random draw": (queries.random_draw(found), "Drawn at random: what to expect."),
        "Mistakes": (
            queries.mistakes(found),
            "Drawn at random among queries whose first answer is wrong.",
        ),
        "Hardest": (
            queries.hardest(found),
            "Fewest right answers among the nearest; of those, the surest of a wrong one first.",
        ),
    }
    tabs = ""
    for number, (title, (chosen, line)) in enumerate(views.items()):
        rows = "\n".join(_query_row(query, test, found, dataset) for query in chosen)
        checked = " checked" if number == 0 else ""
        tabs += (
            f'<input type="radio" name="view" id="view-{number}"{checked}>'
            f'<label for="view-{number}">{title}</label>'
            f'<div class="panel"><p>{line}</p>{rows or "<p>There are none.</p>"}</div>\n'
        )
    number_means = "cosine similarity" if found.cosine else "Euclidean distance (d)"
    return (
        f'<p class="key"><b class="right">✓ solid green</b>: same class as the query. '
        f'<b class="wrong">✗ dashed red</b>: another class. The number is the {number_means}.</p>'
        f'<div class="tabs">{tabs}</div>'
    )


def map_section(data: Json) -> str:
    """The frame the script draws the map into."""
    shown, total = len(data["x"]), data["total"]
    part = (
        f"all {total:,}" if shown == total else f"{shown:,} of {total:,}, drawn evenly over classes"
    )
    return (
        f"<p>The test pictures ({part}; {len(data['names']):,} classes) laid flat by t&#8209;SNE: "
        "near on the map means alike to the network; distances between far groups mean nothing. "
        "One colour per class; ✕ marks a picture whose nearest neighbour is of another class. "
        "Point at a picture, or tap it, to see it and its class; drag to enlarge, double-click to "
        "go back.</p>"
        f'<div class="map">'
        f'<div class="controls"><label for="map-class">Highlight</label>'
        f'<select id="map-class"><option value="">no class</option></select></div>'
        f'<div class="plot" id="map" role="img" aria-label="t-SNE map of the test pictures"></div>'
        f'<div class="tip" hidden><div class="thumb"></div><b></b><span></span></div></div>'
    )


def _config_facts(config: Json) -> Json:
    facts = {
        part: _named(config.get(part)) for part in ("loss", "miner", "sampler") if config.get(part)
    }
    keys = ("backbone", "embedding_size", "epochs", "batch_size", "lr", "seed")
    titles = {"embedding_size": "embedding size", "batch_size": "batch size", "lr": "learning rate"}
    return {titles.get(key, key): config.get(key) for key in keys} | facts


def _data_facts(result: Json, dataset: Dataset) -> Json:
    data, split = result.get("data", {}), result.get("split", {})
    facts = {
        "data": data.get("name", dataset.name),
        "pictures": f"{data.get('items', len(dataset)):,}",
        "classes": f"{data.get('classes', len(dataset.label_names)):,}",
    }
    for part in ("train", "validation", "test"):
        if f"{part}_classes" in split:
            items = split.get(f"{part}_items")
            pictures = f" ({items:,} pictures)" if items is not None else ""
            facts[f"{part} classes"] = f"{split[f'{part}_classes']:,}{pictures}"
    marks = {"split": split.get("hash"), "fingerprint of the data": data.get("fingerprint")}
    return facts | {title: str(mark)[:16] for title, mark in marks.items() if mark}


def _selection_facts(run: RunFolder) -> Json:
    selection = (run.result or {}).get("selection") or {}
    if "metric" not in selection:
        return {}
    value = selection.get("value")
    reached = f" ({100 * value:.1f} %)" if value is not None else ""
    again = selection.get("refit")
    refit = f"{again['epochs']} epochs on all {again['train_classes']} classes" if again else None
    return {
        "model kept": f"{tables.kept(selection)}{reached}",
        "epochs trained": len(run.epochs),
        "descriptor": tables.descriptor(run.result or {}) or "the embedding",
    } | ({"trained again": refit} if refit else {})


def _named(part: Any) -> str:
    """{"name": "margin", "beta": 1.2} -> margin (beta 1.2)."""
    if not isinstance(part, dict):
        return str(part)
    given = {key: value for key, value in part.items() if key != "name" and value != "none"}
    values = ", ".join(f"{key} {value}" for key, value in given.items())
    return str(part.get("name", "")) + (f" ({values})" if values else "")


def _test_reads(manifest: Json) -> str:
    reads = manifest.get("test_reads") or []
    if not reads:
        return "<h3>Reads of the test classes</h3><p>None so far.</p>"
    keys = ("time", "purpose", "config_hash")
    cells = [[f"<td>{escape(str(read.get(key, '')))}</td>" for key in keys] for read in reads]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        '<h3>Reads of the test classes</h3><div class="scroll" tabindex="0" role="region" '
        'aria-label="Reads of the test classes"><table><thead><tr><th scope="col">time</th>'
        '<th scope="col">purpose</th><th scope="col">config</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _versions(run: RunFolder) -> str:
    versions = {"unseen": run.manifest.get("unseen"), **(run.manifest.get("versions") or {})}
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"<p>Made with {escape(text)}.</p>" if text else ""


def _query_row(query: int, test: TestEmbeddings, found: Found, dataset: Dataset) -> str:
    answers = ""
    for rank, position in enumerate(found.positions[query]):
        if position < 0:
            break
        right = bool(found.matches[query, rank])
        word, sign = ("right", "✓") if right else ("wrong", "✗")
        verdict = f'<span class="verdict">{sign} {found.closeness(query, rank)}</span>'
        answers += (
            f'<li class="tile {word}">{tile(test.indices[position], dataset, word, verdict)}</li>'
        )
    asked = tile(test.indices[query], dataset, "query", '<span class="verdict">query</span>')
    return f'<div class="query"><div class="tile">{asked}</div><ol>{answers}</ol></div>'


def _main(row: str) -> str:
    return ' class="main"' if row == "trained" else ""


def _percent(cell: Json) -> str:
    return f"{tables.percent(cell['value'])}&nbsp;%"

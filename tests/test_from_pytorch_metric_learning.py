"""What the page says of pytorch-metric-learning holds: the programs run, and every row of its
tables is compared with the peer's own objects on the same tensors."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import unseen
from unseen import losses, miners, regularizers, samplers
from unseen.core import registry
from unseen.core.contracts import Output
from unseen.evaluation.metric_names import parse_metric
from unseen.losses.smooth_ap import positive_ranks
from unseen.metrics.base import Clustering
from unseen.training.cross_batch_memory import CrossBatchMemory

pml = pytest.importorskip("pytorch_metric_learning")
PAGE = (Path(__file__).parents[1] / "docs" / "from_pytorch_metric_learning.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NAMES = PAGE.partition("## Names\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (.*?) ?\|$", NAMES, re.MULTILINE)
ROWS = [row for row in ROWS if not row[1].startswith("unseen.") and row[0] != "AccuracyCalculator"]
SIZES = ((4, 4, 4, 4, 4, 4), (2, 3, 7, 5, 2, 4), (1, 3, 6, 2, 1, 5))  # of classes; the last: lone
DIMENSION = 8


def test_their_program_does_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours is the README's, which has a test of its own."""
    exec(compile(PROGRAMS[1], "theirs", "exec"), {})
    before, after = re.findall(r"'precision_at_1': ([\d.]+)", capsys.readouterr().out)
    assert float(after) > float(before) + 0.4


def test_our_loop_does_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """On the features that ours begins with."""
    features = PROGRAMS[0].partition("\n\nloss, miner")[0]
    exec(compile(f"{features}\n{PROGRAMS[2]}", "loop", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) > 0.6


def test_their_samplers_are_refused_with_what_to_do(tmp_path: Path) -> None:
    from pytorch_metric_learning.samplers import MPerClassSampler

    labels = torch.arange(20).repeat_interleave(4)
    theirs = MPerClassSampler(labels, m=4, batch_size=16)
    with pytest.raises(ValueError, match=r'MPerClassSampler is no sampler of.*"per_class": m'):
        unseen.fit((torch.randn(80, 4), labels), sampler=theirs, out=tmp_path, progress=False)


def test_the_counts_of_lines_are_true() -> None:
    message = [int(number) for number in re.findall(r"(\d+) lines", PAGE)]
    assert message == [len([line for line in p.splitlines() if line.strip()]) for p in PROGRAMS]


def batches(sizes: tuple[tuple[int, ...], ...] = SIZES, unit: bool = False) -> list[Any]:
    """Embeddings and labels in any order, of several seeds and class sizes."""
    result = []
    for seed in range(3):
        for counts in sizes:
            generator = torch.Generator().manual_seed(seed)
            labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
            labels = labels[torch.randperm(len(labels), generator=generator)]
            rows = torch.randn(len(labels), DIMENSION, generator=generator, dtype=torch.float64)
            result.append((F.normalize(rows) if unit else rows, labels))
    return result


def made(call: str, *packages: Any) -> Any:
    """What a call makes; classes and size are given where they are asked for."""
    from pytorch_metric_learning import distances, reducers

    name, values = re.fullmatch(r"([\w.]+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    method = next(getattr(p, name) for p in packages if hasattr(p, name))
    context = {"num_classes": len(SIZES[0]), "embedding_size": DIMENSION}
    if method.__module__.startswith("pytorch") and name == "MarginLoss":
        context = {}  # there the number of classes is another loss
    request = {p.name for p in registry.parameters(method)}
    given = {key: value for key, value in context.items() if key in request}
    return method(**given, **eval(f"dict({values})", vars(distances) | vars(reducers)))


def equal_losses(one: Any, two: Any, inputs: list[Any], tuples: Any = None) -> None:
    """By value and gradient; class vectors stand in columns there and in rows here."""
    one, two = one.double(), two.double()
    for mine, other in zip(two.parameters(), one.parameters(), strict=False):
        value = other.detach().clone()
        mine.data = value if value.shape == mine.shape else value.T.reshape(mine.shape)
    for rows, labels in inputs:
        result = []
        for loss in (one, two):
            x = rows.clone().requires_grad_()
            given = F.normalize(x) if rows.norm(dim=1).allclose(ONE) else x
            price = loss(given, labels, tuples)
            price.backward()
            assert x.grad is not None
            result.append((price.item(), x.grad))
        assert result[0][0] == pytest.approx(result[1][0], rel=1e-7)
        torch.testing.assert_close(result[0][1], result[1][1], rtol=1e-6, atol=1e-9)
        assert result[0][1].abs().max() > 0


ONE = torch.ones((), dtype=torch.float64)


def losses_of(theirs: str, ours: str, where: str) -> None:
    from pytorch_metric_learning import losses as their_losses

    sizes = SIZES[:2] if "no class of one item" in where else SIZES
    inputs = batches(sizes, unit="unit embeddings" in where)
    equal_losses(made(theirs, their_losses), made(ours, losses), inputs)


def losses_of_pairs(theirs: str, ours: str, where: str) -> None:
    """Both get the pairs that our miner draws."""
    from pytorch_metric_learning import losses as their_losses

    call = re.search(r"`miners\.(.*?)`", where)[1]  # type: ignore[index]
    for rows, labels in batches():
        mined = made(call, miners)(rows, labels)
        equal_losses(made(theirs, their_losses), made(ours, losses), [(rows, labels)], mined)


def smooth_average_precision(theirs: str, ours: str, where: str) -> None:
    """Theirs is ours with the query itself among its neighbours."""
    from pytorch_metric_learning import losses as their_losses

    one, two = made(theirs, their_losses), made(ours, losses)
    num, scale = 4, two.temperature
    for rows, _ in batches(((num,) * num,)):
        labels = torch.arange(num).repeat_interleave(num)
        same = labels[:, None] == labels
        pos = same & ~torch.eye(len(labels), dtype=torch.bool)
        sim = F.normalize(rows) @ F.normalize(rows).T
        query, among_positives, among_all = positive_ranks(sim, pos, ~same, scale)
        kept = 1 - torch.stack(
            [(among_positives / among_all)[query == i].mean() for i in range(16)]
        )
        assert two(rows, labels).item() == pytest.approx(kept.mean().item())
        itself = torch.sigmoid((1 - sim[pos]) / scale)  # it is nearer than any positive
        nearer = torch.sigmoid((sim - 1) / scale)
        own = 1 + (nearer * pos).sum(1), 1 + (nearer * ~torch.eye(16, dtype=torch.bool)).sum(1)
        terms = (among_positives + itself) / (among_all + itself)
        sums = torch.zeros(16, dtype=torch.float64).index_add_(0, query, terms) + own[0] / own[1]
        assert one(rows, labels).item() == pytest.approx(1 - (sums / num).mean().item(), rel=1e-6)
        assert one(rows, labels).item() < two(rows, labels).item()


def distances_and_reducers(theirs: str, ours: str, where: str) -> None:
    """As a value of the triplet loss, beside what PML has for the other of the two."""
    from pytorch_metric_learning import distances, reducers
    from pytorch_metric_learning.losses import TripletMarginLoss

    given = made(theirs, distances, reducers)
    two = made(ours, losses)
    if "distance=" in ours:
        one = TripletMarginLoss(margin=two.margin, distance=given, reducer=reducers.MeanReducer())
    else:
        squared = distances.LpDistance(power=2)
        one = TripletMarginLoss(margin=two.margin, distance=squared, reducer=given)
    equal_losses(one, two, batches())


def tuples_of(theirs: str, ours: str, where: str) -> None:
    from pytorch_metric_learning import miners as their_miners

    for rows, labels in batches():
        one, two = made(theirs, their_miners)(rows, labels), made(ours, miners)(rows, labels)
        assert len(one) == len(two)
        halves = [slice(0, 2), slice(2, 4)] if len(one) == 4 else [slice(0, 3)]
        for half in halves:
            result = [
                sorted(zip(*(t.tolist() for t in each[half]), strict=True)) for each in (one, two)
            ]
            assert result[0] == result[1]
            assert len(result[0]) == len(set(result[0])) > 0


def odds_of(theirs: str, ours: str, where: str) -> None:
    """As many triplets of each anchor; positives and negatives that are drawn as often."""
    from pytorch_metric_learning import miners as their_miners

    torch.manual_seed(0)
    for rows, labels in batches()[:3]:
        drawn = [
            torch.stack([torch.stack(list(miner(rows, labels))) for _ in range(150)])  # [150, 3, T]
            for miner in (made(theirs, their_miners), made(ours, miners))
        ]
        anchors = [[torch.bincount(draw[0]).tolist() for draw in each] for each in drawn]
        assert anchors[0] == anchors[1]
        for other in (1, 2):
            place = [(each[:, 0] * len(rows) + each[:, other]).flatten() for each in drawn]
            one, two = (torch.bincount(p, minlength=len(rows) ** 2).double() for p in place)
            # of the same odds (a - b)^2 / (a + b) is the square of a standard normal number
            seen = one + two >= 10
            statistic = ((one - two)[seen].square() / (one + two)[seen]).sum()
            assert statistic < seen.sum() + 4 * (2 * seen.sum()).sqrt()
            assert (one[two == 0] < 10).all()
            assert (two[one == 0] < 10).all()


def memories(theirs: str, ours: str, where: str) -> None:
    """The same items are held, and compared with: theirs with `enqueue_mask` compares with what was
    stored before, as ours does."""
    from pytorch_metric_learning import losses as their_losses

    size = int(re.search(r"size=(\d+)", ours)[1])  # type: ignore[index]
    equal = {
        their_losses.MultiSimilarityLoss(): losses.MultiSimilarityLoss(),
        their_losses.TripletMarginLoss(margin=0.2): losses.TripletLoss(0.2, "euclidean", "active"),
    }
    for their_loss, our_loss in equal.items():
        one = their_losses.CrossBatchMemory(their_loss, DIMENSION, memory_size=size)
        two = CrossBatchMemory(size=size, embedding_size=DIMENSION).double()
        for place, (rows, labels) in enumerate(batches()):
            two.add(rows, labels)
            more, request = batches()[place - 1]
            queued = torch.arange(len(rows) + len(more)) < len(rows)
            price = one(torch.cat([rows, more]), torch.cat([labels, request]), enqueue_mask=queued)
            held, classes = two.references()
            assert torch.equal(held, one.embedding_memory[: len(held)])
            assert torch.equal(classes, one.label_memory[: len(held)])
            result = our_loss(more, request, None, held, classes)
            assert price.item() == pytest.approx(result.item(), rel=1e-7)


def regularizers_of(theirs: str, ours: str, where: str) -> None:
    from pytorch_metric_learning import regularizers as their_regularizers

    one = made(theirs, their_regularizers)
    two = made(ours.removeprefix("regularizers."), regularizers)
    for rows, labels in batches():
        assert one(rows).item() == pytest.approx(two(Output(rows, rows), labels).item())


def samplers_of(theirs: str, ours: str, where: str) -> None:
    """Batches of as many different classes with m items of each, repeated where there are fewer."""
    from pytorch_metric_learning.samplers import MPerClassSampler

    number = int(re.search(r"m=(\d+)", theirs)[1])  # type: ignore[index]
    assert f"per_class={number}" in ours
    for _, labels in batches(((9, 5, 2, 7, 3, 6, 8),)):
        one = MPerClassSampler(labels, m=number, batch_size=16, length_before_new_iter=160)
        items = torch.arange(len(labels))
        two = samplers.MPerClassSampler(items, labels, batch_size=16, per_class=number)
        drawn = [torch.tensor(list(one)).split(16), [torch.tensor(batch) for batch in two]]
        for each in drawn:
            assert len(each) > 0
            for batch in each:
                classes, counts = labels[batch].unique(return_counts=True)
                assert (len(classes), counts.tolist()) == (4, [number] * 4)
                for c, size in zip(classes, torch.bincount(labels)[classes], strict=True):
                    different = len(batch[labels[batch] == c].unique())
                    assert different == min(number, int(size)) or size < number


def metrics_of(theirs: str, ours: str, where: str) -> None:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    metric = parse_metric(ours)
    for rows, labels in batches():
        if isinstance(metric, Clustering):
            assert "of the same clusters" in where
            clusters = labels[
                torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
            ]
            calculator = AccuracyCalculator(include=(theirs,), knn_func=lambda: None)
            calculate = getattr(calculator, f"calculate_{theirs}")
            expected = calculate(query_labels=labels, cluster_labels=clusters)
            assert metric(clusters, labels) == pytest.approx(expected, abs=1e-7)
            continue
        knn = CustomKNN(CosineSimilarity())
        calculator = AccuracyCalculator(include=(theirs, "precision_at_1"), k=None, knn_func=knn)
        expected = calculator.get_accuracy(rows, labels)[theirs]
        result = unseen.evaluate(rows, labels, metrics=[ours], resamples=0)
        assert result.values[ours].value == pytest.approx(expected, abs=1e-7)


COMPARISONS: dict[str, Callable[[str, str, str], None]] = {
    "NPairsLoss": losses_of_pairs,
    "SmoothAPLoss": smooth_average_precision,
    "DistanceWeightedMiner": odds_of,
    "CrossBatchMemory": memories,
    "LpRegularizer": regularizers_of,
    "MPerClassSampler": samplers_of,
} | dict.fromkeys(("NMI", "AMI"), metrics_of)
ENDINGS = {
    "Loss": losses_of,
    "Miner": tuples_of,
    "Distance": distances_and_reducers,
    "Similarity": distances_and_reducers,
    "Reducer": distances_and_reducers,
}


def comparison(theirs: str) -> Callable[[str, str, str], None]:
    """Of a row that nothing compares, an error."""
    name = re.match(r"\w+", theirs)[0]  # type: ignore[index]
    if name in COMPARISONS:
        return COMPARISONS[name]
    if name.islower():
        return metrics_of
    return next(compare for end, compare in ENDINGS.items() if name.endswith(end))


def test_every_row_is_read() -> None:
    """Also one that is written otherwise than the pattern of rows expects."""
    lines = [line for line in NAMES.splitlines() if line.startswith("|")]
    heads = sum(line.startswith("|---") for line in lines)
    assert len(ROWS) == len(lines) - 2 * heads > 35


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")  # in theirs
@pytest.mark.parametrize(("theirs", "ours", "where"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_page(theirs: str, ours: str, where: str) -> None:
    comparison(theirs)(theirs, ours, where)

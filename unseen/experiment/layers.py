"""Every layer as a descriptor: recall of each, and the choice of the run's own.

descriptor = "embedding"    what the loss sees
descriptor = "<layer>"      any layer (`unseen layers RUN` names them); epochs are chosen by it
descriptor = "best"         the layer with the highest recall@1 on the classes the run selects on,
                            found with the weights of the chosen epoch
descriptor = "orders"       all orders of HORDE, reduced by principal components
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from unseen import build
from unseen.contracts import IntArray
from unseen.data.pictures.loader import evaluation_batches
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.experiment.orders import ORDERS, fit_orders
from unseen.experiment.setting import Setting, Watch, computing
from unseen.networks.descriptor import Tappable, usual_taps
from unseen.networks.network import EMBEDDING
from unseen.networks.taps import check_names
from unseen.training.run_folder import RunFolder

BEST = "best"
METRIC = "recall@1"


def choose_descriptor(
    setting: Setting, folder: RunFolder, selection: dict[str, Any], watch: Watch
) -> dict[str, Any]:
    """The selection with the run's descriptor in it, also on disk."""
    if "descriptor" in selection:
        return selection
    asked = setting.config.descriptor
    chosen: dict[str, Any] = {"asked": asked, "layer": asked}
    if asked == BEST:
        on = setting.config.select
        if on == "test":
            folder.note_test_read("choice of the best layer", setting.config.hash())
        recall = recall_to_select_by(setting, folder, watch)
        chosen |= {"on": on, "recall": {name: round(value, 6) for name, value in recall.items()}}
        # of equals the last: nearest to what was trained
        chosen["layer"] = max(reversed(recall), key=lambda name: recall[name])
        watch.tell({"event": "descriptor"} | chosen)
    if asked == ORDERS:
        with computing(setting):
            fit_orders(setting, folder, stored_network(setting, folder), watch)
    selection = selection | {"descriptor": chosen}
    folder.write_json("selection.json", selection)
    return selection


def recall_to_select_by(setting: Setting, folder: RunFolder, watch: Watch) -> dict[str, float]:
    """Recall@1 of every usual layer of the stored network on the classes to select on."""
    network = stored_network(setting, folder)
    _, transform = build.picture_transforms(setting.config, network)
    layers = named_layers(setting, network, transform)
    split, on = setting.split, setting.config.select
    items, told = split.test if on == "test" else split.validation, watch.of(f"layers on {on}")
    with computing(setting):
        found = setting.embed_layers(network, transform, items, layers, told)
        scores = setting.processes.agreed(lambda: judged(setting, found, items))
    return {name: score.values[METRIC].value for name, score in scores.items()}


def stored_network(setting: Setting, folder: RunFolder) -> Tappable:
    """The network a run has kept."""
    if not folder.has("weights.safetensors"):
        raise ValueError(
            f"{folder.path} has no weights yet: it was stopped before its first epoch ended"
        )
    network = build.network(setting.config).to(setting.device)
    network.load_state_dict(folder.read_tensors("weights.safetensors"))
    return network


def named_layers(
    setting: Setting, network: Tappable, transform: Any, asked: Sequence[str] = ()
) -> list[str]:
    """The layers asked for, or all usual ones, in the order they run."""
    if asked:
        check_names(asked, network.layers())
        return list(dict.fromkeys(asked))
    first = setting.split.train[:1]
    batch = next(evaluation_batches(setting.dataset, first, transform, 1, workers=0))
    return usual_taps(network, batch.images.to(setting.device))


def judged(
    setting: Setting, descriptors: dict[str, Tensor], items: IntArray
) -> dict[str, Evaluation]:
    """Recall@1 of each layer, without intervals."""
    asking = setting.asking(items)
    return {
        name: evaluate(
            **asking.arguments(descriptor),
            metrics=(METRIC,),
            normalise=setting.config.normalise or name != EMBEDDING,
            resamples=0,
        )
        for name, descriptor in descriptors.items()
    }

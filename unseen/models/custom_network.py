"""A module of the user as a network: images or features to embeddings."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from unseen.core import custom_components
from unseen.core.contracts import Output
from unseen.models.backbone import Backbone
from unseen.models.body_spec import InputSpec, input_spec_of
from unseen.models.layer_outputs import inner_layers
from unseen.models.network import LayeredNetwork
from unseen.models.weights import load_weights


class CustomNetwork(LayeredNetwork):
    """A module of the user as a network: images or features to embeddings.

    num_inputs: the length of the features it takes; None: it takes images. image_size: None
    is what the module says, or 224.

    A module of the user's own as a network: anything that turns images [N, 3, H, W] (or features
    [N, P]) into embeddings [N, D], or into an `Output` if it has maps or several heads to show.

    It may say how it wants its images: `input_spec = InputSpec(size, mean, std)`. Its layers can be
    read, frozen (`freeze_until=<layer>`) and compared by their own names, like those of built-in
    ones.
    """

    def __init__(
        self,
        module: nn.Module,
        image_size: int | None = None,
        num_inputs: int | None = None,
        frozen_bn: str = "off",
    ) -> None:
        super().__init__()
        spec = input_spec_of(module, image_size) if num_inputs is None else InputSpec(0)
        shape = (2, 3, spec.size, spec.size) if num_inputs is None else (2, num_inputs)
        output = _tried(module, shape)
        self.embedding_size = output.embeddings.shape[1]
        width = output.embeddings.shape[1] if output.maps is None else output.maps.shape[1]
        self.backbone = Backbone(module, num_inputs or width, spec, frozen_bn=frozen_bn)

    def forward(self, images: Tensor) -> Output:
        return self.finish(self.backbone.body(images))

    def finish(self, output: Tensor | Output) -> Output:
        """What the module gave, as an Output."""
        return output if isinstance(output, Output) else Output(output, output)

    def leading_layers(self) -> tuple[nn.Module, str]:
        return self.backbone.body, "forward"

    def warm_up(self, only_new_layers: bool) -> None:
        """Nobody but its author knows which of its layers are new: all are trained."""

    def named_layers(self) -> dict[str, nn.Module]:
        return inner_layers(self.backbone.body)


def create_custom_network(
    name: str,
    image_size: int | None = None,
    num_inputs: int | None = None,
    frozen_bn: str = "off",
    weights: str | None = None,
) -> CustomNetwork:
    """A network from outside by its name: a class or a function makes it, an object is copied.
    weights: a file."""
    result = (
        custom_components.find_object(name)
        if custom_components.is_object(name)
        else custom_components.find(name)
    )
    module = deepcopy(result) if isinstance(result, nn.Module) else result()
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name} must be or make an nn.Module, got {type(module).__name__}")
    if weights is not None:
        load_weights(module, weights, (), lambda state: state)
    return CustomNetwork(module, image_size, num_inputs, frozen_bn)


@torch.no_grad()
def _tried(module: nn.Module, shape: tuple[int, ...]) -> Output:
    """What the module gives for two blank items; one that cannot be a network is refused here."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ValueError(f"{type(module).__name__} has no parameters: there is nothing to train")
    name, was_training = type(module).__name__, module.training
    try:
        output = module.eval()(torch.zeros(shape, device=parameter.device))
    except Exception as error:
        raise ValueError(f"{name} does not take {list(shape)}: {error}") from error
    finally:
        module.train(was_training)
    result = output if isinstance(output, Output) else Output(output, output)
    rows = result.embeddings
    if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != shape[0]:
        got = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(
            f"{name} must give embeddings [N, D] or an unseen.core.contracts.Output, got {got} for "
            f"{list(shape)}"
        )
    return result

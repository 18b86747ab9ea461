"""HORDE, high-order moments."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.contracts import Miner, Network, Output
from unseen.core.geometry import full_precision
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import from_indices
from unseen.regularizers.base import Regularizer
from unseen.regularizers.high_order.descriptor import OrdersDescriptor
from unseen.regularizers.high_order.moments import Moments, glorot


class HordeRegularizer(Regularizer):
    """HORDE: the loss also on high-order moments of the last map, which are dropped after training.

    Formula:
        for the vectors x at the places of a map and projectors W, elementwise products *:

            phi_2 = (W_1 x) * (W_2 x),    phi_k = phi_(k-1) * (W_k x)    up to num_orders
            m_k = mean of phi_k over the places,    e_k = unit(E_k m_k),    L = sum of loss(e_k)

        Order 1 is the network's own embedding. With cascade=False order k has k projectors of its
        own. With trained=False projectors are fixed random signs and there is no E_k: <phi_k(x),
        phi_k(y)> / dimension is then <x, y>^k on average.

    Paper:
        P. Jacob et al., Metric Learning with HORDE: High-Order Regularizer for Deep Embeddings,
        ICCV 2019, https://arxiv.org/abs/1908.02735

    Args:
        make_loss: make_loss(embedding_size) gives one order's loss; a run fills it in.
        miner: of tuples for all orders; a run fills it in.
        num_channels: of the last map; a run fills it in.
        embedding_size: dimensions of an order's embedding; a run fills it in.
        num_orders: 5 on birds and cars, 4 on products (orders 1 to 5, 1 to 4).
        dimension: of the moments; 8192. Fewer dimensions make high orders noise.
        cascade: order k goes on from order k - 1; False: k projectors of its own.
        trained: learned projectors, which start uniform (Glorot), or +-1; False: fixed random
            signs.
        reduce: of an ensemble's maps: to the channels of one learner (1024 of GoogLeNet), on the
            learners' maps together; None: as they are.
        columns: dimensions computed at a time, and again in the backward pass: memory falls as
            columns / dimension. None: all.
        seed: of the projectors.

    Weight:
        1, in an ensemble 1 / (num_orders - 1).

    Notes:
        sizes cancel in unit(), so signs see maps divided by their mean length, whose fifth power
        would be large. (Algorithm 1 starts every projector from +-1 / sqrt(dimension); the authors'
        code as here. The text's "5 high-order moments" are orders 1 to 5.)

    Use:
        any loss and miner on any network with maps; each order has a loss, and its parameters, of
        its own. `concatenated` gives all orders as one descriptor (reduce it by principal
        components fitted on training items).

    Example:
        >>> from unseen.losses import TripletLoss
        >>> from unseen.regularizers import HordeRegularizer
        >>> make_loss = lambda size: TripletLoss()
        >>> horde = HordeRegularizer(make_loss, None, num_channels=4, embedding_size=2, dimension=8)
        >>> [tuple(embedding.shape) for embedding in horde.embeddings]
        [(8, 2), (8, 2), (8, 2), (8, 2)]
    """

    own_weight_decay = None
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "horde": {},
        "horde_products": {"num_orders": 4},
        "all_trained": {"cascade": False},
        "random_maclaurin": {"cascade": False, "trained": False},
        "cascade_fixed": {"trained": False},
    }

    def __init__(
        self,
        make_loss: Callable[[int], nn.Module],
        miner: Miner | None,
        num_channels: int,
        embedding_size: int,
        num_orders: int = 5,
        dimension: int = 8192,
        cascade: bool = True,
        trained: bool = True,
        reduce: int | None = None,
        columns: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if num_orders < 2:
            raise ValueError(f"num_orders counts from 1 and must be at least 2, got {num_orders}")
        self.miner = miner
        generator = torch.Generator().manual_seed(seed)
        self.moments = Moments(
            num_channels, dimension, num_orders, cascade, trained, reduce, columns, generator
        )
        size = embedding_size if trained else dimension
        orders = range(2, num_orders + 1)
        self.embeddings: nn.Parameter | None = None
        if trained:
            start = [glorot(dimension, size, generator) for _ in orders]
            self.embeddings = nn.Parameter(torch.stack(start))
        self.losses = nn.ModuleList(make_loss(size) for _ in orders)

    @staticmethod
    def weight_in_ensemble(values: Mapping[str, Any]) -> float:
        """What a config that names no weight means: the orders together weigh as much as one."""
        return 1 / max(1, int(values["num_orders"]) - 1)

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        return self.global_half(self.local_half(output), labels)

    def local_half(self, output: Output) -> Tensor:  # [N, orders - 1, size]
        """What a process computes from its own images."""
        return self.order_embeddings(output).movedim(1, 0)

    def global_half(self, vectors: Tensor, labels: AnyLabels) -> Tensor:
        """The loss of all images' vectors [N, orders - 1, size]."""
        return self.on_orders(vectors.movedim(0, 1), labels)

    def order_embeddings(self, output: Output) -> Tensor:  # [orders - 1, N, size]
        """Unit embeddings of orders 2 and up."""
        if output.maps is None:
            raise ValueError(
                "horde needs the network's last map or patch tokens, and this network gives none: "
                "choose another backbone, or leave horde out"
            )
        maps = full_precision(output.maps)
        if self.embeddings is None:
            maps = maps / maps.detach().norm(dim=1).mean().clamp(min=1e-12)
        moments = self.moments(maps)  # [orders - 1, N, d]
        lengths = moments.detach().norm(dim=2).sum(dim=1) / max(1, moments.shape[1])  # [orders - 1]
        self.note(**{f"moment_{order}": size for order, size in enumerate(lengths, start=2)})
        if self.embeddings is not None:
            moments = moments @ self.embeddings.to(moments.dtype)
        return F.normalize(moments, dim=2, eps=1e-12)

    def on_orders(self, orders: Tensor, labels: AnyLabels) -> Tensor:
        """The sum of the orders' losses, given all order embeddings [orders - 1, N, size]."""
        terms = []
        for embeddings, loss in zip(orders, self.losses, strict=True):
            tuples = None
            if self.miner is not None:
                tuples = from_indices(self.miner(embeddings, labels))
            terms.append(loss(embeddings, labels, tuples))
        self.note(**{f"loss_{order}": term for order, term in enumerate(terms, start=2)})
        return torch.stack(terms).sum()

    def concatenated(self, output: Output) -> Tensor:  # [N, D + (orders - 1) * size]
        """All orders as one descriptor, the network's own embedding first."""
        first = F.normalize(output.embeddings, eps=1e-12)
        return torch.cat([first, *self.order_embeddings(output)], dim=1)

    def descriptor(self, network: Network, size: int) -> OrdersDescriptor:
        """A network whose embeddings are all orders, to be reduced to `size` values."""
        return OrdersDescriptor(network, self, size)

    def local_parameters(self) -> list[nn.Parameter]:
        """Those behind the order embeddings: several processes each hold part of the gradient."""
        theirs = {id(parameter) for parameter in self.losses.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in theirs]

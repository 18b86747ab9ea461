"""A descriptor as a sum over the places of a map: what each place adds to it.

Formula  z is what the way from a map x [C, H, W] to the descriptor gives, J its derivative at x,
         x_h the map that is x at place h and 0 elsewhere:

             z_h = J x_h,        z = rest + sum over h of z_h

         so that the cosine of two descriptors is a sum over pairs of places, z_h . y_k / |z| |y|.
Exact    every pooling here grows with the map (twice the map, twice the result), so the z_h add up
         to it by Euler's theorem: avg gives a place its share of the mean, max gives each channel
         to the place of its maximum (to equal ones alike), avg+max both, gem x^p over the sum of
         x^p. A linear layer keeps sums. The rest is then the layer's bias (and gem's floor), which
         no place makes: it is shared evenly, and the sum over all pairs is the cosine.
Gradient with a hidden layer, an ensemble or a transformer's own pooling the z_h are its first
         order alone, and the rest is left out. Where nothing is left of the places behind the last
         layers (a class token), they are cells of the image itself, on the mean colour.
Places   large maps are looked at in cells, at most 14 x 14. Mirrored views count where they lie in
         the image. Class and register tokens are no place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from unseen.core.contracts import Network
from unseen.models.backbone import with_mirror_images
from unseen.models.descriptor import Described, Shortened
from unseen.models.head import Head
from unseen.models.layer_outputs import EMBEDDING, POOLED, hooked
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.models.pooling import create_pooling

MOST_CELLS = 14  # in height and in width
PIXEL_CELLS = 7
CHUNK = 16  # copies of a map that go on together
GROWTH = 1e-4  # twice the places give twice the descriptor, but for this share of it


@dataclass(frozen=True)
class Places:
    """The parts of one image's descriptor. is_exact: they add up to it, and each is what its
    place adds; otherwise they are by gradient. on_pixels: places are cells of the image."""

    parts: Tensor  # [P, D]
    descriptor: Tensor  # [D]
    grid: tuple[int, int]
    is_exact: bool
    on_pixels: bool = False


class Way(NamedTuple):
    """From activations [V, C, H, W] or [V, T, C] of one image's V views to its descriptor;
    `finish` takes n times V of them. skipped: leading tokens that are no place; grid: rows and
    columns of the others."""

    activations: Tensor
    finish: Callable[[Tensor], Tensor]
    is_exact: bool
    is_mirrored: bool = False
    skipped: int = 0
    grid: tuple[int, int] = (0, 0)


def places_of(network: Network, image: Tensor) -> Places:  # image [3, s, s]
    """What each place adds to an image's descriptor. The network is in evaluation mode."""
    images = image[None]
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # others have no second derivative
        way = _way(network, images)
        result = None if way is None else _parts(way, MOST_CELLS)
        if result is not None and bool(result.parts.any()):
            return result
        whole = Way(images, lambda x: network(x).embeddings, is_exact=False)
        result = _parts(whole, PIXEL_CELLS)
    return Places(result.parts, result.descriptor, result.grid, is_exact=False, on_pixels=True)


def place_descriptors(network: Network, images: Tensor) -> Tensor | None:
    """Unit descriptors [N, P, C] of the places of the last map, or of the patches, of images
    [N, 3, s, s], at most 14 x 14; None where the network keeps no places."""
    with torch.no_grad():
        way = _way(network, images)
    if way is None:
        return None
    x = way.activations[:: len(way.activations) // len(images)]  # mirrored views stand beside
    if x.ndim == 3:  # [N, T, C]
        x = x[:, way.skipped :].mT.unflatten(2, way.grid)
    grid = (min(MOST_CELLS, x.shape[2]), min(MOST_CELLS, x.shape[3]))
    x = nn.functional.adaptive_avg_pool2d(x.float(), grid)
    return nn.functional.normalize(x.flatten(2).mT, dim=2)


def _parts(way: Way, most: int) -> Places:
    masks, grid = _masks(way, most)  # [P, V, ...]
    x = way.activations
    descriptor = way.finish(x)[0]
    result = [_derived(way, x, some) for some in masks.split(CHUNK)]
    parts = torch.cat(result)
    if way.is_exact:
        parts = parts + (descriptor - parts.sum(dim=0)) / len(parts)
    return Places(parts, descriptor, grid, way.is_exact)


def _derived(way: Way, x: Tensor, masks: Tensor) -> Tensor:  # [n, D]
    """J x_h for some places, from one pass of as many copies. J^T u is linear in u, and its
    derivative by u in the direction x_h is J x_h: two backward passes, no forward one."""
    with torch.enable_grad():
        copies = x.expand(len(masks), *x.shape).flatten(0, 1).requires_grad_()
        output = way.finish(copies)
        u = torch.zeros_like(output, requires_grad=True)
        (back,) = torch.autograd.grad(output, copies, u, create_graph=True)
        (result,) = torch.autograd.grad(back, u, (masks * x).flatten(0, 1))
    return result


def _masks(way: Way, most: int) -> tuple[Tensor, tuple[int, int]]:
    """Which values are at which place: [P, V, 1, H, W] or [P, V, T, 1], and the grid."""
    x = way.activations
    height, width = x.shape[2:] if x.ndim == 4 else way.grid
    rows, columns = min(most, height), min(most, width)
    row, column = torch.arange(height) * rows // height, torch.arange(width) * columns // width
    cell = row[:, None] * columns + column  # [H, W]
    mirrorings = [cell, cell.flip(1)] if way.is_mirrored else [cell] * len(x)
    cells = torch.stack(mirrorings)  # [V, H, W]
    if x.ndim == 3:
        none = torch.full((len(x), way.skipped), -1)
        cells = torch.cat([none, cells.flatten(1)], dim=1)[..., None]  # [V, T, 1]
    else:
        cells = cells[:, None]
    wanted = torch.arange(rows * columns).view(-1, *[1] * cells.ndim)
    return (cells == wanted).to(x), (rows, columns)


def _way(network: Network, images: Tensor) -> Way | None:
    """None where the places are lost before the layers that can be read."""
    if isinstance(network, Shortened):
        whole, size = _way(network.network, images), network.embedding_size
        return whole and whole._replace(finish=lambda x: whole.finish(x)[:, :size])
    layer = EMBEDDING
    if isinstance(network, Described):
        layer, network = network.layer, network.network
    if not isinstance(network, LayeredNetwork):
        return None
    if layer in network.named_layers() and not layer.startswith("head."):
        return _at_layer(network, layer, images)
    if isinstance(network, EmbeddingNetwork):
        return _through_head(network, layer, images)
    first, method = network.leading_layers()
    output, finish = getattr(first, method)(images), network.finish
    if layer != EMBEDDING or not isinstance(output, Tensor) or output.ndim != 4:
        return None
    return Way(output, lambda x: finish(x).embeddings, is_exact=False)


def _through_head(network: EmbeddingNetwork, layer: str, images: Tensor) -> Way | None:
    backbone, head = network.backbone, network.head
    both = with_mirror_images(images) if backbone.mirror else images
    features = backbone.features(both)
    is_last = features.ndim == 4 and backbone.has_channels_last
    features = features.permute(0, 3, 1, 2) if is_last else features
    if features.ndim < 3 or backbone.class_token is not None:
        return None

    def pool(x: Tensor) -> Tensor:
        return backbone.pool(x.permute(0, 2, 3, 1) if is_last else x)[0]

    def finish(x: Tensor) -> Tensor:
        pooled = pool(x).unflatten(0, (-1, len(both))).mean(dim=1)
        return pooled if layer == POOLED else _until(head, layer, pooled)

    skipped, grid = backbone.skipped("", features), (0, 0)
    twice = 2 * features
    if features.ndim == 3:
        grid = backbone.grid(features.shape[1] - skipped)
        twice[:, :skipped] = features[:, :skipped]
    before, after = pool(features), pool(twice)
    grows = bool((after - 2 * before).abs().max() <= GROWTH * before.abs().max())
    is_exact = grows and _is_linear(head, layer)
    return Way(features, finish, is_exact, bool(backbone.mirror), skipped, grid)


def _at_layer(network: LayeredNetwork, layer: str, images: Tensor) -> Way | None:
    """A layer of the body as descriptor: the maximum over the places of its map (`taps.py`)."""
    seen: dict[str, Tensor] = {}
    with hooked({layer: network.named_layers()[layer]}, lambda n, x: seen.update({n: x.clone()})):
        network(images)
    backbone = network.backbone
    x = backbone.places(layer, seen[layer])
    if x.ndim not in (3, 4):
        return None
    grid = backbone.grid(x.shape[1]) if x.ndim == 3 else (0, 0)
    largest = create_pooling("max")

    def finish(copies: Tensor) -> Tensor:
        pooled: Tensor = largest(copies) if copies.ndim == 4 else copies.mean(dim=1)
        return pooled.reshape(len(copies) // len(x), -1)

    return Way(x, finish, True, bool(backbone.mirror), grid=grid)


def _until(head: Head, layer: str, pooled: Tensor) -> Tensor:
    """The head up to a layer of it, or the whole."""
    for name, step in head.named_children():
        pooled = step(pooled)
        if layer == f"head.{name}":
            break
    return pooled


def _is_linear(head: Head, layer: str) -> bool:
    return layer in (POOLED, "head.fc1") or not hasattr(head, "relu1")

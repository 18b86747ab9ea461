"""The first images of a search in another order: `unseen search --rerank`.

    expansion     the query becomes the sum of itself and its nearest (`refine.expanded`), and asks
                  again
    k-reciprocal  of the first images those come first that have each other, and the query's other
                  neighbours, among their nearest (`refine.reranked`); neighbours are those of the
                  whole index
    local         of the first images those come first whose places look like the query's: places
                  of the last map that are each other's nearest neighbours (`local_scores`)

Similarities, and what is calibrated on them, stay those of the query as it was.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.images.decode import UnreadableImageError
from unseen.models.map_positions import place_descriptors
from unseen.runs.trained_run import BoxedImage, Trained
from unseen.search.file_states import embedded_content
from unseen.search.index import Ids, Index, Neighbors
from unseen.search.refine import K1, K2, TOP, expanded, reranked

Kind = Literal["k-reciprocal", "expansion", "local"]
FIRST = 100  # images whose order may change
WEIGHT = 0.3  # of the places' similarity beside that of the descriptors
BATCH = 16  # images in memory at a time

Match = Callable[[Ids], Tensor]  # ids of images to the similarity of their places to the query's


def search(
    index: Index,
    vectors: NDArray[np.float32] | Tensor,
    k: int,
    filter: Collection[int] | Ids | None = None,
    where: str | None = None,
    *,
    kind: Kind,
    match: Match | None = None,
) -> Neighbors:
    """As `Index.search`, for one vector [1, D]. match: of `local` (`matching`)."""
    result = index.search(vectors, max(k, FIRST), filter, where)
    ids = result.ids[0][result.ids[0] >= 0]
    if len(ids) < 2:
        return result
    query = torch.nn.functional.normalize(torch.as_tensor(vectors).float().reshape(1, -1))
    first, rest = ids[:FIRST], ids[FIRST:]
    near = torch.from_numpy(index.vectors(first))
    sim = near @ query[0]
    if kind == "expansion":
        moved = expanded(query, near[None, :TOP], sim[None, :TOP])
        ids = index.search(moved, k, filter, where).ids[0]
        first, rest = ids[ids >= 0], ids[:0]
    elif kind == "k-reciprocal":
        first = first[_reciprocal(index, query, near, first)]
    else:
        assert match is not None
        fused = sim + WEIGHT * match(first)
        first = first[fused.argsort(descending=True, stable=True).numpy()]
    ids = np.concatenate([first, rest])[:k]
    values = (torch.from_numpy(index.vectors(ids)) @ query[0]).numpy()
    return replace(result, ids=ids[None], similarities=values[None])


def _reciprocal(index: Index, query: Tensor, near: Tensor, ids: Ids) -> NDArray[np.int64]:
    """The order of the images `ids`, among them and the neighbours of each."""
    theirs = index.search(near, min(K1 + 1, len(index))).ids
    others = np.setdiff1d(theirs, [-1, *ids])
    known = torch.cat([query, near])
    if len(others):
        known = torch.cat([known, torch.from_numpy(index.vectors(others))])
    k1 = min(K1, len(known) - 1)
    candidates = torch.arange(1, len(ids) + 1)[None]
    order: NDArray[np.int64] = reranked(known, candidates, k1, min(K2, k1))[0].numpy() - 1
    return order


def matching(index: Index, model: Trained, image: Tensor) -> Match:
    """Who compares the places of an image, as the network takes it, with those of images of the
    index, read again from their files. One whose file is gone or another counts as the mean of the
    others."""
    query = _places(model, image[None])[0]

    def match(ids: Ids) -> Tensor:
        result = torch.full((len(ids),), torch.nan)
        for start in range(0, len(ids), BATCH):
            some = [prepared_again(index, model, id) for id in ids[start : start + BATCH].tolist()]
            there = [place for place, each in enumerate(some) if each is not None]
            if there:
                images = torch.stack([each for each in some if each is not None])
                scores = local_scores(query, _places(model, images))
                result[torch.tensor(there) + start] = scores
        return result.nan_to_num(float(result.nanmean().nan_to_num(0)))

    return match


def prepared_again(index: Index, model: Trained, id: int) -> Tensor | None:
    """An image of the index as the network takes it; None where its file is gone or another."""
    metadata = index.metadata(id)
    content = embedded_content(metadata)
    if content is None:
        return None
    try:
        return model.prepared(
            content if metadata.box is None else BoxedImage(content, metadata.box)
        )
    except (UnreadableImageError, OSError):
        return None


def _places(model: Trained, images: Tensor) -> Tensor:  # [n, P, C]
    result = place_descriptors(model.network, images.to(model.device))
    if result is None:
        raise ValueError("local re-ranking needs a network whose last layer keeps places")
    return result.cpu()


def local_scores(query: Tensor, gallery: Tensor) -> Tensor:  # [P, C], [n, Q, C] -> [n]
    """The mean over the query's places of the cosine with the place that is its mutual nearest
    neighbor, at least 0; 0 where there is none."""
    sim = torch.einsum("pc,nqc->npq", query, gallery)
    value, there = sim.max(dim=2)  # [n, P]
    mutual = sim.argmax(dim=1).gather(1, there) == torch.arange(len(query))
    return (value.clamp(min=0) * mutual).mean(dim=1)


def reranker(
    index: Index, model: Trained, image: Tensor | None, kind: Kind
) -> Callable[..., Neighbors]:
    """A search for `ask`. image: that asks, as the network takes it; `local` needs it."""
    if kind not in get_args(Kind):
        raise ValueError(f"rerank must be {', '.join(get_args(Kind))}, got {kind!r}")
    if not index.manifest.model.normalize:
        raise ValueError("re-ranking is for unit vectors, and this run compares raw ones")
    match = None
    if kind == "local":
        if image is None:
            raise ValueError("local re-ranking is for one image that asks")
        match = matching(index, model, image)
    return partial(search, index, kind=kind, match=match)

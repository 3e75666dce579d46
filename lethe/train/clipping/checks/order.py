"""Check of the order of records inside a model: where they stand in another order, a layer's rows must as well."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import ALLOWED, chance, close

_MOVED = 7  # records that are passed through a model in another order

Seen = list[tuple[nn.Module, Tensor]]
"""Inputs of the layers that hold trained parameters, records first, or what stands in their place, in the order of their calls."""


@contextmanager
def layers_watched(model: nn.Module) -> Generator[Seen]:
    """Within: what the layers with trained parameters of their own are given is collected."""
    seen: Seen = []

    def looked_at(module: nn.Module, args: Any, kwargs: Any) -> None:
        first = next((entry for entry in (*args, *kwargs.values()) if isinstance(entry, Tensor | PackedSequence)), None)
        dimension = 1 if getattr(module, "batch_first", True) is False else 0
        if isinstance(first, PackedSequence):
            first, dimension = pad_packed_sequence(first, batch_first=True)[0], 0
        if isinstance(first, Tensor) and first.dim() > dimension:
            seen.append((module, first.detach().transpose(0, dimension)))

    layers = [module for module in model.modules() if any(own.requires_grad for own in module.parameters(recurse=False))]
    handles = [layer.register_forward_pre_hook(looked_at, with_kwargs=True) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def fewer_in_another_order(records: int) -> list[int]:
    """Some places, one less than there are records at most, in another order; of two records, one of them."""
    return _turned_round(chance.sample(range(records), min(records - 1, _MOVED)))


def among_others(kept: Sequence[int], others: Sequence[int]) -> tuple[list[int], list[int]]:
    """Some records in another order, at random places among all others but one.

    At least one of the others stands between them: records that a model's sorting holds for equal would otherwise keep their places
    wherever the others happen to stand sorted before and after them.

    Args:
        kept, others: places in a batch.
    Returns:
        All these records as they are to stand, and the places of those that are kept; nothing where there are not two of either.
    """
    if min(len(kept), len(others)) < 2:
        return [], []
    found, places = chance.sample(list(others), len(others) - 1), [0]
    while places[-1] - places[0] < len(kept):
        places = sorted(chance.sample(range(len(kept) + len(found)), len(kept)))
    for place, record in zip(places, _turned_round(kept), strict=True):
        found.insert(place, record)
    return found, places


def _turned_round(places: Sequence[int]) -> list[int]:
    """The last first, but for some neighbours that change places at random: of n, n - 2 pairs at most stand as they stood.

    A model that sorts leaves records as they are where only pairs that are equal to it are turned round. Unless all are equal, n - 1 pairs
    at least are not; so one of these is turned round, whatever it sorts by.
    """
    order = sorted(places, reverse=True)
    for _ in range(len(order) - 2):
        place = chance.choice(range(len(order) - 1))
        order[place], order[place + 1] = order[place + 1], order[place]
    return order


def require_order(
    before: Seen,
    after: Seen,
    records: int,
    order: Sequence[int],
    model: nn.Module,
    precision: torch.dtype,
    *,
    asked: Sequence[int] | None = None,
) -> bool:
    """Refuse a model that does not hand its records on in the order in which they came.

    Fewer records are moved than there are, so that what has as many rows as there are records by chance is told from what has a row for
    each.

    Args:
        before: of the records as they came.
        after: of fewer of them, that at place i being `order[i]` of those.
        records: how many came.
        order: the places.
        model: that the layers are of.
        precision: the coarsest arithmetic that the model computed in.
        asked: places of those whose numbers are what they were; None: all.
    Returns:
        Whether all layers that were given records could be compared: not where fewer records take another branch, or are cut to the
        longest of them.
    Raises:
        UnfollowedError: a layer was given other records' rows.
    """
    compared, places = True, list(range(len(order)) if asked is None else chance.sample(list(asked), min(len(asked), _MOVED)))
    if [module for module, _ in before] != [module for module, _ in after]:
        return False  # other branches: nothing stands beside each other
    for (module, first), (_, second) in zip(before, after, strict=True):
        if len(first) != records or len(second) != len(order) or first.dim() != second.dim():
            continue
        if isinstance(module, nn.RNNBase) and first.dim() > 2:  # a packed sequence is as long as its longest
            common = min(first.shape[1], second.shape[1])
            first, second = first[:, :common], second[:, :common]
        if first.shape[1:] != second.shape[1:]:
            compared = False
            continue
        if all(torch.equal(second[place], first[order[place]]) for place in places):
            continue  # most agree in every number, which takes no copies to see
        expected, second = first[[order[place] for place in places]], second[places]
        if second.is_floating_point():
            same = close(second, expected, expected, ALLOWED, precision)
        else:
            same = (second == expected).reshape(len(places), -1).all(1)
        if not bool(same.all()):
            row = places[int((~same).nonzero()[0, 0])]
            names = {own: path for path, own in model.named_modules()}
            raise UnfollowedError(
                f"the model hands records on in another order than they came in, at {names.get(module) or 'the model itself'} "
                f"({type(module).__name__}): row {row} there belongs to another record, or is made of several.",
                source="the clipper's self-check: a few records, and the same records in another order",
                remedy="do not sort or shuffle records inside the model (pack_padded_sequence(..., enforce_sorted=False) needs no order); "
                "replace what depends on a record's place in its batch.",
                doubtful=True,
            )
    return compared

"""Records of a data set read one by one, each as it was when it was returned."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from lethe.errors import InputError

_UNCHANGING = (bool, int, float, complex, str, bytes, type(None), np.generic)


class OneByOne:
    """Asks a data set for `dataset[i]`, i after i.

    A data set that fills one array anew for each record and returns that array gives a batch in which the last record stands in every
    row: one record would move the sum by B times its bound. Where two records of a batch lie at one place, they are asked for again, and
    each is copied before the next is read.

    Args:
        dataset: map-style.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._copying = False

    def __call__(self, indices: list[int]) -> list[Any]:
        """The records.

        Raises:
            InputError: two lie at one place, and cannot be copied.
        """
        if not self._copying:
            records = [self._dataset[index] for index in indices]
            if not _meet(records):
                return records
            self._copying = True
        return [self._copied(index) for index in indices]

    def _copied(self, index: int) -> Any:
        record = self._dataset[index]
        try:
            return tree_map(_copied, record)
        except Exception as error:
            raise InputError(
                f"data: {type(self._dataset).__name__} returns parts of one record for another, and they cannot be copied: {error}.",
                remedy="return a new object for each record.",
            ) from error


def _copied(leaf: Any) -> Any:
    """A copy; of a tensor its own numbers alone: copy.deepcopy takes the whole of what it is a part of, such as all pictures with one."""
    return leaf.clone() if isinstance(leaf, Tensor) and not leaf.requires_grad else copy.deepcopy(leaf)


def _meet(records: list[Any]) -> bool:
    """Whether two records share an array, or another object that may be changed."""
    seen: set[tuple[str, int]] = set()
    for record in records:
        own = set(_places(record))
        if own & seen:
            return True
        seen |= own
    return False


def _places(record: Any) -> Iterator[tuple[str, int]]:
    if isinstance(record, list | dict):
        yield "object", id(record)
    for leaf in tree_flatten(record)[0]:
        if isinstance(leaf, Tensor):
            if leaf.layout != torch.strided:
                yield "object", id(leaf)
            elif leaf.numel():
                yield "numbers", leaf.data_ptr()
        elif isinstance(leaf, np.ndarray):
            if leaf.size:
                yield "numbers", leaf.ctypes.data
        elif not isinstance(leaf, _UNCHANGING):
            yield "object", id(leaf)

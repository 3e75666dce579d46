"""Fingerprint of the training data, so that a checkpoint is continued on the same records."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from lethe.errors import InputError
from lethe.train.core.tensors import contents
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Source, fetched

_SAMPLES = 32
_READ = 2**32  # bytes: so much of arrays and of .npy files is read whole, in some seconds
_PIECE = 2**24


def fingerprint(source: Source, key: str | None = None) -> dict[str, Any]:
    """What tells a data source from others, as plain data.

    `samples` are keyed hashes (BLAKE2b) of at most 32 records, at evenly spaced places, one for each tensor of a record. They are derived
    from private data and must stay with the checkpoint: the key lies beside them, so whoever holds both can test a guess at those records.
    The key (hexadecimal) is fresh for every stream, so two checkpoints do not tell whether their data are the same.

    Each of these records is read twice, the second time from the last to the first. A tensor that is another then is random (augmentation):
    it has an empty hash, and is not compared.

    Raises:
        InputError: a record has more tensors than another, or is another when another was read before it.
    """
    key = os.urandom(32).hex() if key is None else key
    places = sorted({(len(source) - 1) * place // (_SAMPLES - 1) for place in range(_SAMPLES)})
    with torch.random.fork_rng(devices=[]):
        first = fetched(source, slice(0, 1))
        there, back = (_hashes(source, order, key, len(first)) for order in (places, places[::-1]))
        if there != back:
            _refuse_neighbours(source, places, key, len(first))
    parts = [["".join(found[place][part] for place in places) for found in (there, back)] for part in range(len(first))]
    return {
        "records": len(source),
        "shapes": [list(tensor.shape[1:]) for tensor in first],
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in first],
        "key": key,
        "samples": [_hash(one.encode(), key) if one == other else "" for one, other in parts],
    }


def whole(source: Source, key: str) -> list[str]:
    """A hash of all records for each of a record's tensors, of arrays and .npy files of at most 4 GiB; of other sources none."""
    first = fetched(source, slice(0, 1))
    row = sum(prod(tensor.shape[1:]) * tensor.dtype.itemsize for tensor in first)
    if not isinstance(source, TensorSource) or row * len(source) > _READ:
        return []
    size = max(1, _PIECE // max(1, row))
    digests = [hashlib.blake2b(key=bytes.fromhex(key), digest_size=32) for _ in first]
    for start in range(0, len(source), size):
        for digest, tensor in zip(digests, source.fetch(slice(start, start + size)), strict=True):
            digest.update(contents(tensor))
    return [digest.hexdigest() for digest in digests]


def refuse_others(document: Any, mine: dict[str, Any]) -> None:
    """Compare a checkpoint's fingerprint with that of these data, taken under the same key.

    Raises:
        InputError: the data are others, or the checkpoint holds no fingerprint.
    """
    lists = ("samples", "whole")
    if set(document) != set(mine) or not all(isinstance(document[name], list) for name in lists):
        raise InputError("state: its data source is not described as a batch stream describes it.", source="state['source']")
    for name, what in (("records", "number of records"), ("shapes", "shapes"), ("dtypes", "types")):
        if document[name] != mine[name]:
            raise InputError(
                f"data: the {what} of the checkpoint's data is {document[name]}; of these data it is {mine[name]}.",
                remedy="take training up again with the data it began with.",
            )
    # Arrays may have moved to other sources, which are not read whole, and back; what is random has no hash.
    pairs = [pair for name in lists for pair in zip(document[name], mine[name], strict=False)]
    if any(there and here and there != here for there, here in pairs):
        raise InputError(
            "data: some records differ from those of the checkpoint, or stand in another order.",
            remedy="take training up again with the data it began with; for other data, begin a new run.",
        )


def _hashes(source: Source, places: Sequence[int], key: str, parts: int) -> dict[int, list[str]]:
    """Of the tensors of some records, read in the order of the places."""
    found: dict[int, list[str]] = {}
    for place in places:
        tensors = fetched(source, slice(place, place + 1))
        if len(tensors) != parts:
            raise InputError(f"data: record {place} is of {len(tensors)} tensors; the first is of {parts}.")
        found[place] = [_hash(repr((tuple(tensor.shape), tensor.dtype)).encode() + contents(tensor), key) for tensor in tensors]
    return found


def _hash(text: bytes, key: str) -> str:
    return hashlib.blake2b(text, key=bytes.fromhex(key), digest_size=32).hexdigest()


def _refuse_neighbours(source: Source, places: Sequence[int], key: str, parts: int) -> None:
    """Refuse records that are always the same after the same record, and others after another: what is random is not the same."""
    few = places[:: max(1, len(places) // 8)]
    turned = [number.bit_count() % 2 == 1 for number in range(8 + 16 // len(few))]  # what changes with each reading has no such rhythm
    read = [_hashes(source, few[::-1] if back else few, key, parts) for back in turned]
    seen = [[found[place] for place in few[1:-1]] for found in read]  # at the ends it is left to the order before what was read before
    if seen[0] != seen[1] and seen == [seen[back] for back in turned]:
        raise InputError(
            "data: a record is another when another record was read before it.",
            source="the check of the data: some records, read in two orders",
            remedy="make record i of record i alone: keep nothing of the record before in the data set.",
        )

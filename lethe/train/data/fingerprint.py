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
from lethe.train.data.sources import Source, TensorSource, fetched

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
        InputError: a record is another when another was read before it.
    """
    key = os.urandom(32).hex() if key is None else key
    places = sorted({(len(source) - 1) * place // (_SAMPLES - 1) for place in range(_SAMPLES)})
    with torch.random.fork_rng(devices=[]):
        first = fetched(source, slice(0, 1))
        there, back = (_hashes(source, places, key, turned=turned) for turned in (False, True))
        if there != back:
            _refuse_neighbours(source, places, key)
    tensors = zip(zip(*there, strict=True), zip(*back, strict=True), strict=True)
    return {
        "records": len(source),
        "shapes": [list(tensor.shape[1:]) for tensor in first],
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in first],
        "key": key,
        "samples": [_hash("".join(one).encode(), key) if one == other else "" for one, other in tensors],
    }


def whole(source: Source, key: str) -> list[str]:
    """A hash of all records for each of a record's tensors, of arrays and .npy files of at most 4 GiB; of other sources none."""
    first = fetched(source, slice(0, 1)) if isinstance(source, TensorSource) else ()
    row = sum(prod(tensor.shape[1:]) * tensor.dtype.itemsize for tensor in first)
    if not first or row * len(source) > _READ:
        return []
    size = max(1, _PIECE // max(1, row))
    digests = [hashlib.blake2b(key=bytes.fromhex(key), digest_size=32) for _ in first]
    for start in range(0, len(source), size):
        for digest, tensor in zip(digests, source.fetch(slice(start, start + size)), strict=True):
            digest.update(contents(tensor))
    return [digest.hexdigest() for digest in digests]


def refuse_others(document: dict[str, Any], mine: dict[str, Any]) -> None:
    """Compare a checkpoint's fingerprint with that of these data, taken under the same key.

    Raises:
        InputError: the data are others.
    """
    other = [f"{name} {mine[name]}, not {document[name]}," for name in ("records", "shapes", "dtypes") if document[name] != mine[name]]
    # Arrays may have moved to other sources, which are not read whole, and back; what is random has no hash.
    pairs = [pair for name in ("samples", "whole") for pair in zip(document[name], mine[name], strict=False)]
    if other or any(there and here and there != here for there, here in pairs):
        raise InputError(
            f"data: {' '.join(other) or 'some records'} differ from those of the checkpoint, or stand in another order.",
            remedy="take training up again with the data it began with; for other data, begin a new run.",
        )


def _hashes(source: Source, places: Sequence[int], key: str, *, turned: bool) -> list[list[str]]:
    """Of the tensors of some records, which are read in the order of the places, or from the last to the first."""
    found: dict[int, list[str]] = {}
    for place in reversed(places) if turned else places:
        tensors = fetched(source, slice(place, place + 1))
        found[place] = [_hash(repr((tuple(tensor.shape), tensor.dtype)).encode() + contents(tensor), key) for tensor in tensors]
    return [found[place] for place in places]


def _hash(text: bytes, key: str) -> str:
    return hashlib.blake2b(text, key=bytes.fromhex(key), digest_size=32).hexdigest()


def _refuse_neighbours(source: Source, places: Sequence[int], key: str) -> None:
    """Refuse records that are always the same after the same record, and others after another: what is random is not the same."""
    few = places[:: max(1, len(places) // 8)]
    turns = [number.bit_count() % 2 == 1 for number in range(16)]  # what changes with each reading has no such rhythm
    seen = [_hashes(source, few, key, turned=turned)[1:-1] for turned in turns]  # before the ends is what was read before
    if seen[0] != seen[1] and seen == [seen[turned] for turned in turns]:
        raise InputError(
            "data: a record is another when another record was read before it.",
            source="the check of the data: some records, read in two orders",
            remedy="make record i of record i alone: keep nothing of the record before in the data set.",
        )

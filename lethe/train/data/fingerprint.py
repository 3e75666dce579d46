"""Fingerprint of the training data, so that a checkpoint is continued on the same records."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from lethe.errors import InputError
from lethe.train.core.tensors import contents
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Layout, Source, fetched
from lethe.train.data.sources.mapped import MappedSource

_SAMPLES = 32
_KEY_BYTES = 32

# Files are read whole up to so many bytes, some two seconds; arrays in memory always, in pieces.
_READ = 2**30
_PIECE = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A fingerprint of a data source, by which a checkpoint recognises it.

    The number of records and the layout of one are public. `whole` are keyed hashes (BLAKE2b) of all records, one for each tensor of a
    record, where they are arrays in memory, or .npy files of 1 GiB at most; `samples` are the same of at most 32 records, at evenly spaced
    places, of any source. They are derived from private data and must stay with the checkpoint: the key lies beside them, so whoever holds
    both can test a guess at those records. The key is fresh for every stream, so two checkpoints do not tell whether their data are the
    same.

    Each of these 32 is read twice. A tensor that is another the second time (random augmentation) has an empty hash, and is not compared;
    the others are, such as the targets beside augmented inputs. Of these, records in another order show only where their targets differ.

    Args:
        records: n.
        shapes: of one record's tensors.
        dtypes: their names.
        key: hexadecimal.
        samples: hexadecimal; empty for a tensor that the source gives differently each time.
        whole: hexadecimal; empty where not all records were read.
    """

    records: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    key: str
    samples: tuple[str, ...]
    whole: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Source, layout: Layout, key: str | None = None) -> Fingerprint:
        """The fingerprint of a source, of some of its records; `with_whole` adds the hashes of all.

        Args:
            source: the data.
            layout: of one record.
            key: hexadecimal; None: a fresh one.
        Raises:
            InputError: a record has more tensors than another.
        """
        key = os.urandom(_KEY_BYTES).hex() if key is None else key
        with torch.random.fork_rng(devices=[]):
            first, second = (_samples(source, key, len(layout.shapes)) for _ in range(2))
        return cls(
            records=len(source),
            shapes=layout.shapes,
            dtypes=tuple(str(dtype).removeprefix("torch.") for dtype in layout.dtypes),
            key=key,
            samples=tuple(one if one == other else "" for one, other in zip(first, second, strict=True)),
        )

    def with_whole(self, source: Source) -> Fingerprint:
        """A copy with the hashes of all records of this very source, if it is one of those that are read whole."""
        return self if self.whole else replace(self, whole=_whole(source, self.key))

    def to_document(self) -> dict[str, Any]:
        """Plain data, for a checkpoint."""
        shapes = [list(shape) for shape in self.shapes]
        return {
            "records": self.records,
            "shapes": shapes,
            "dtypes": list(self.dtypes),
            "key": self.key,
            "samples": list(self.samples),
            "whole": list(self.whole),
        }

    def refuse_others(self, document: Any) -> None:
        """Compare with a checkpoint's document, which must have been taken under the same key.

        Raises:
            InputError: the data are others, or the document is not one.
        """
        mine = self.to_document()
        if not isinstance(document, dict) or set(document) != set(mine):
            raise InputError("state: its data source is not described as a batch stream describes it.", source="state['source']")
        for name, what in (("records", "number of records"), ("shapes", "shapes"), ("dtypes", "types")):
            if document[name] != mine[name]:
                raise InputError(
                    f"data: the {what} of the checkpoint's data is {document[name]}; of these data it is {mine[name]}.",
                    source="state['source']",
                    remedy="take training up again with the data it began with.",
                )
        samples, whole, parts = document["samples"], document["whole"], len(self.samples)
        if not isinstance(samples, list) or len(samples) != parts or not isinstance(whole, list) or len(whole) not in (0, parts):
            raise InputError("state: the hashes of its data source are damaged.", source="state['source']['samples'], ['whole']")
        # Data in memory may have moved to files that are not read whole, and back.
        pairs = [*zip(samples, self.samples, strict=True), *zip(whole, self.whole, strict=False)]
        if any(there and here and there != here for there, here in pairs):
            raise InputError(
                "data: some records differ from those of the checkpoint, or stand in another order.",
                source="state['source']",
                remedy="take training up again with the data it began with; for other data, begin a new run.",
            )


def _samples(source: Source, key: str, parts: int) -> tuple[str, ...]:
    """A hash of some records for each of a record's `parts` tensors."""
    last = len(source) - 1
    places = sorted({last * place // (_SAMPLES - 1) for place in range(_SAMPLES)})
    # Slices, since a source that reads in order need not load much for them.
    records = [fetched(source, slice(place, place + 1)) for place in places]
    for place, tensors in zip(places, records, strict=True):
        if len(tensors) != parts:
            raise InputError(
                f"data: record {place} is of {len(tensors)} tensors; the first is of {parts}.", remedy="give all records the same parts."
            )
    return tuple(_hashed((tensors[part] for tensors in records), key) for part in range(parts))


def _whole(source: Source, key: str) -> tuple[str, ...]:
    """A hash of all records for each of a record's tensors; none where reading them all could take long."""
    layout = Layout.of(source)
    row = sum(prod(shape) * dtype.itemsize for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True))
    if not isinstance(source, TensorSource) and not (isinstance(source, MappedSource) and row * len(source) <= _READ):
        return ()
    digests = [hashlib.blake2b(repr(dtype).encode(), key=bytes.fromhex(key), digest_size=32) for dtype in layout.dtypes]
    size = max(1, _PIECE // max(1, row))
    for first in range(0, len(source), size):
        for digest, tensor in zip(digests, fetched(source, slice(first, min(first + size, len(source)))), strict=True):
            digest.update(contents(tensor))
    return tuple(digest.hexdigest() for digest in digests)


def _hashed(tensors: Iterable[torch.Tensor], key: str) -> str:
    digest = hashlib.blake2b(key=bytes.fromhex(key), digest_size=32)
    for tensor in tensors:
        digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(contents(tensor))
    return digest.hexdigest()

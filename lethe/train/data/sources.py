"""Data sources: a public number of records, and the rows of any of them by number; the source of arrays and .npy files; fingerprints.
`BatchStream` fetches each batch from one; checkpoints compare fingerprints, so that a resumed training reads the same records.
"""

import hashlib
import os
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from lethe.documents.strict import as_path, reading_arrays
from lethe.errors import InputError
from lethe.train.core.samplers import Batch, length
from lethe.train.core.tensors import contents

Tensors = tuple[Tensor, ...]
Array = np.ndarray[Any, Any]
_FILES = "give a .npy file of numbers, as numpy.save writes it; Parquet files as datasets.Dataset.from_parquet(paths)."


@runtime_checkable
class Source(Protocol):
    """Records in a fixed order. Anything with these two methods is one; `as_source` makes one of most things.

    The order and the number of records must not change while a run lasts.
    """

    def __len__(self) -> int:
        """n, the number of records; public."""
        ...

    def fetch(self, batch: Batch) -> Tensors:
        """The records of a batch, collated: tensors that have one row for each record, in the order asked for.

        Args:
            batch: a slice without a step, or int64 indices on the CPU, shape (k,), k >= 1, all below n.
        """
        ...


def fetched(source: Source, batch: Batch) -> Tensors:
    """`source.fetch(batch)`."""
    tensors, rows = source.fetch(batch), length(batch)
    for index, tensor in enumerate(tensors if isinstance(tensors, tuple) and tensors else ((),)):
        if not isinstance(tensor, Tensor) or tensor.ndim == 0 or tensor.shape[0] != rows:
            got = f"has shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"is {type(tensor).__name__}"
            part = (fields_of(source) or range(len(tensors)))[index]
            raise InputError(
                f"{type(source).__name__}: part {part} of a batch {got}; it needs a tensor with {rows} rows, one for each record "
                "(batch dimension first).",
                source="the data set or its collate function: texts, or several records packed in one row",
                remedy="no packing=True; graphs and sets are padded to one size, with a mask as a tensor, or given one at a time: "
                "physical_size=1.",
            )
    return tensors


def fields_of(source: Source) -> tuple[str, ...] | None:
    """The names of a source's tensors, in their order; None: they have none, and a record is (inputs, ..., target)."""
    return getattr(source, "fields", None) or None


def refuse_fields(source: Source, what: str) -> Source:
    """The source, if its records are (inputs, ..., target); if their parts have names, an InputError: `what` goes by their places."""
    if (fields := fields_of(source)) is not None:
        raise InputError(
            f"data: a record is a mapping with the keys {', '.join(fields)}; {what} takes (features, target).",
            remedy="give a tuple of arrays, or a collate function that picks the two in order.",
        )
    return source


def mapping_of(fields: Sequence[str], tensors: Sequence[Tensor], counted: Tensor | None) -> dict[str, Tensor]:
    """A batch by the names of its tensors.

    Rows that are no records by `counted`, shape (B,), attend as well, since a row that attends to nothing may be NaN.
    """
    batch = dict(zip(fields, tensors, strict=True))
    if counted is not None and "attention_mask" in batch:
        batch["attention_mask"][~counted.to(batch["attention_mask"].device)] = 1
    return batch


class TensorSource:
    """Records that are the rows of arrays of equal length, such as features and targets. No array is copied whole; batches are copies.

    Args:
        arrays: each a tensor or an array of shape (n, ...), such as a memory map; a .npy file, which is mapped into memory; or a folder of
            these, in alphabetical order.
        fields: names of the tensors, by which the model is given them; None: they have none, and the last is the target.
    Raises:
        InputError: a file that cannot be mapped, no records, different lengths, something else than numbers, or sparse tensors.
    """

    def __init__(self, *arrays: Tensor | Array | str | os.PathLike[str], fields: Sequence[str] | None = None) -> None:
        self.fields = None if fields is None else tuple(fields)
        opened = [pair for index, array in enumerate(arrays) for pair in _opened(self.fields[index] if self.fields else f"{index}", array)]
        self._parts = [_rows(name, array) for name, array in opened]
        if not self._parts or not len(self):
            raise InputError("data: got no records, or no array; it needs at least one.")
        if len({len(part) for part in self._parts}) > 1:
            listed = ", ".join(f"{name}: {len(part)}" for (name, _), part in zip(opened, self._parts, strict=True))
            raise InputError(f"data: the arrays differ in their number of records ({listed}).", remedy="give one row for each record.")

    def __len__(self) -> int:
        return len(self._parts[0])

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch, copied."""
        rows: list[Tensor] = []
        for part in self._parts:
            if isinstance(part, Tensor):
                rows.append(part[batch].clone() if isinstance(batch, slice) else part.index_select(0, batch.to(part.device)))
            else:
                array = part[batch if isinstance(batch, slice) else batch.numpy()]
                rows.append(torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C")))
        return tuple(rows)


def _opened(name: str, part: object) -> list[tuple[str, object]]:
    if not isinstance(part, str | os.PathLike):
        return [(name, part)]
    path, opened = as_path(part), list[tuple[str, object]]()
    for file in sorted(path.glob("*.npy")) if path.is_dir() else [path]:
        with reading_arrays(file, remedy=_FILES):
            opened.append((file.name, np.load(file, mmap_mode="r", allow_pickle=False)))
    return opened


def _rows(name: str, array: object) -> Tensor | Array:
    """The array as it is read from: a tensor on the same memory where PyTorch takes it as it is."""
    dense = isinstance(array, Tensor) and array.layout == torch.strided and not array.is_nested
    numbers = isinstance(array, np.ndarray) and np.can_cast(array.dtype, np.complex128)
    if not isinstance(array, Tensor | np.ndarray) or not (dense or numbers) or array.ndim == 0:
        kind = f" of {array.dtype}, shape {tuple(array.shape)}" if isinstance(array, Tensor | np.ndarray) else ""
        raise InputError(
            f"data: array {name} is a {type(array).__name__}{kind}; it needs a dense tensor or a NumPy array of numbers of at most 64 "
            "bits, with a row for each record.",
            remedy="encode texts and dates first; to_dense() of a sparse tensor.",
        )
    if isinstance(array, Tensor):
        return array.detach()
    return torch.from_numpy(array) if array.flags.writeable and array.dtype.isnative and min(array.strides) >= 0 else array


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
    """
    key = os.urandom(32).hex() if key is None else key
    indices = sorted({(len(source) - 1) * sample // (_SAMPLES - 1) for sample in range(_SAMPLES)})
    with torch.random.fork_rng(devices=[]):
        first = fetched(source, slice(0, 1))
        forward, back = (_hashes(source, indices, key, turned=turned) for turned in (False, True))
        if forward != back:
            _refuse_neighbours(source, indices, key)
    tensors = zip(zip(*forward, strict=True), zip(*back, strict=True), strict=True)
    return {
        "records": len(source),
        "shapes": [list(tensor.shape[1:]) for tensor in first],
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in first],
        "key": key,
        "samples": [_hash("".join(hash_forward).encode(), key) if hash_forward == hash_back else "" for hash_forward, hash_back in tensors],
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


def refuse_others(document: dict[str, Any], current: dict[str, Any]) -> None:
    """Compare a checkpoint's fingerprint with that of these data, taken under the same key."""
    differing = [
        f"{name} {current[name]}, not {document[name]}," for name in ("records", "shapes", "dtypes") if document[name] != current[name]
    ]
    # Arrays may have moved to other sources, which are not read whole, and back; what is random has no hash.
    pairs = [pair for name in ("samples", "whole") for pair in zip(document[name], current[name], strict=False)]
    if differing or any(saved_hash and current_hash and saved_hash != current_hash for saved_hash, current_hash in pairs):
        raise InputError(
            f"data: {' '.join(differing) or 'some records'} differ from those of the checkpoint, or stand in another order.",
            remedy="take training up again with the data it began with; for other data, begin a new run.",
        )


def _hashes(source: Source, indices: Sequence[int], key: str, *, turned: bool) -> list[list[str]]:
    """Of the tensors of some records, which are read in the order of the places, or from the last to the first."""
    hashes: dict[int, list[str]] = {}
    for index in reversed(indices) if turned else indices:
        tensors = fetched(source, slice(index, index + 1))
        hashes[index] = [_hash(repr((tuple(tensor.shape), tensor.dtype)).encode() + contents(tensor), key) for tensor in tensors]
    return [hashes[index] for index in indices]


def _hash(text: bytes, key: str) -> str:
    return hashlib.blake2b(text, key=bytes.fromhex(key), digest_size=32).hexdigest()


def _refuse_neighbours(source: Source, indices: Sequence[int], key: str) -> None:
    """Refuse records that are always the same after the same record, and others after another: what is random is not the same."""
    probes = indices[:: max(1, len(indices) // 8)]
    turns = [number.bit_count() % 2 == 1 for number in range(16)]  # what changes with each reading has no such rhythm
    hashes = [_hashes(source, probes, key, turned=turned)[1:-1] for turned in turns]  # before the ends is what was read before
    if hashes[0] != hashes[1] and hashes == [hashes[turned] for turned in turns]:
        raise InputError(
            "data: a record is another when another record was read before it.",
            source="the check of the data: some records, read in two orders",
            remedy="make record i of record i alone: keep nothing of the record before in the data set.",
        )

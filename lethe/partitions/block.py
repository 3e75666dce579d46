"""Block: the records of one partition as arrays, with a fingerprint by which a later pass sees that they have not changed.

Readers make Blocks; a pass hands each to a function that returns sums. Passes are many, and files may change between them, which would void
what was checked.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lethe.errors import InputError

Values = np.ndarray[Any, np.dtype[Any]]
Rows = slice | np.ndarray[Any, np.dtype[np.intp]]
_FOLDS = 127  # pieces of a block that are added up place by place: a record elsewhere shows, but for whole pieces, and files come in fewer
_SMALL = 2**17  # bytes below which a CRC of all of them costs nothing, and where folds would have few places


class Fingerprint(NamedTuple):
    """How many records a block held, and a checksum of the values and of their order; it finds accidents, not adversaries."""

    records: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Records of one partition, whose name is for errors; columns are names of the features, or their numbers.

    Features have shape (m, d), float32 or float64, m = 0 allowed; targets of any type, weights and users (whose the records are) as stored
    have shape (m,), and are None where there are none or nobody asked.
    """

    name: str
    columns: tuple[Any, ...]
    features: Values
    targets: Values | None = None
    weights: Values | None = None
    users: Values | None = None

    def __len__(self) -> int:
        return len(self.features)

    def some(self, rows: Rows) -> Block:
        """Consecutive ones of its records, as views, or those at these places, copied."""
        targets, weights, users = (None if values is None else values[rows] for values in (self.targets, self.weights, self.users))
        return replace(self, features=self.features[rows], targets=targets, weights=weights, users=users)

    def fingerprint(self) -> Fingerprint:
        """The number of records and a checksum."""
        checksum = _checksum(self.features)
        for values in (self.targets, self.weights, self.users):
            if values is not None:
                checksum = zlib.crc32(checksum.to_bytes(4, "little"), _checksum(values))
        return Fingerprint(len(self), checksum)

    def refuse_not_finite(self) -> None:
        """Refuse NaN and infinity in the features by an InputError that names partition and column."""
        for index, column in enumerate(self.columns):
            remedy = "fill such entries by a number known without looking at the records, or drop their rows, before"
            _require_finite(self.name, column, self.features[:, index], remedy)


def targets_of(block: Block) -> Values:
    """The targets of a block of a table that has some."""
    assert block.targets is not None  # `table_in_blocks` has asked for them
    return block.targets


def looked_at_numbers(block: Block) -> None:
    """Refuse targets that are no finite numbers by an InputError that names the partition."""
    values = targets_of(block)
    if values.dtype.kind not in "biuf":
        raise refused(block.name, "y", f"it holds {values.dtype}; it needs numbers", "write the targets as numbers before")
    _require_finite(block.name, "y", values, "leave such records out before")


def refused(block: str, column: Any, what: str, remedy: str) -> InputError:
    """The error of a partition whose column cannot be used: what is wrong against what is needed, and what to do."""
    return InputError(f"{block}, column {column!r}: {what}.", source=f"{block}; nothing was released", remedy=remedy)


def _require_finite(name: str, column: Any, values: Values, remedy: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        raise refused(name, column, f"row {row} holds {values[row]}; it needs a finite number", remedy)


def _checksum(values: Values) -> int:
    """Of the bytes: sums of words of 64 bits, place by place of each fold, and a CRC of the sums."""
    if values.dtype.kind not in "biufSU":
        return zlib.crc32("\0".join(map(repr, values.tolist())).encode())
    # In the order in which they lie, so that nothing is copied: readers give a block the same order in every pass.
    flat = np.ascontiguousarray(values if values.flags.c_contiguous else values.T).reshape(-1).view(np.uint8)
    whole = flat.size - flat.size % (8 * _FOLDS) if flat.size >= _SMALL else 0
    with np.errstate(over="ignore"):
        sums = flat[:whole].view(np.uint64).reshape(_FOLDS, -1).sum(axis=0, dtype=np.uint64)
    return zlib.crc32(flat[whole:].tobytes(), zlib.crc32(sums.tobytes()))

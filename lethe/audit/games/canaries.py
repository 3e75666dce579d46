"""Canaries: records, and directions of gradients, that a model remembers if it remembers anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.audit.statistics.inputs import require_array
from lethe.calculus.domains import FloatArray, outside, require_count
from lethe.errors import InputError

Column: TypeAlias = NDArray[Any]
Data: TypeAlias = tuple[Column, ...]
"""Arrays with one entry a record, such as (features, targets)."""
Record: TypeAlias = tuple[Any, ...]
"""One entry of each column."""

_MOST = 1_000_000


def require_data(data: object) -> Data:
    """Return arrays of one length >= 1 as a tuple, or raise InputError."""
    columns = tuple(np.asarray(column) for column in data) if isinstance(data, tuple | list) else ()
    lengths = {len(column) if column.ndim else -1 for column in columns}
    if len(lengths) != 1 or min(lengths) < 1:
        raise InputError(
            f"data: got {type(data).__name__} with arrays of length {sorted(lengths)}; it needs a tuple of arrays, one entry a record.",
            source="the argument data",
            remedy="give (features, targets)",
        )
    return columns


def record_of(data: Data, position: int) -> Record:
    """The record at that place."""
    return tuple(column[position] for column in data)


def replaced(data: Data, changes: Mapping[int, Record]) -> Data:
    """A copy of the data with other records at some places.

    Args:
        data: the records.
        changes: place -> the record that is to be there.
    Raises:
        InputError: a place does not exist, or a record does not fit.
    """
    columns = require_data(data)
    copies = tuple(column.copy() for column in columns)
    for position, record in changes.items():
        place = require_count("position", position, low=0, high=len(columns[0]) - 1)
        if len(record) != len(columns):
            raise outside("record", len(record), f"{len(columns)} entries, one of each column")
        for column, entry in zip(copies, record, strict=True):
            shape = np.asarray(entry).shape
            if shape != column.shape[1:]:
                raise outside("record", shape, f"an entry of shape {column.shape[1:]}")
            column[place] = entry
    return copies


def mislabelled(data: Data, position: int, *, classes: int) -> Record:
    """The record at that place with the next class instead of its own (a natural picture with a wrong label).

    Args:
        data: the last column holds class numbers.
        position: of the record.
        classes: how many there are, at least 2.
    Raises:
        InputError: the label is no class number.
    """
    columns, count = require_data(data), require_count("classes", classes, low=2, high=_MOST)
    *inputs, label = record_of(columns, require_count("position", position, low=0, high=len(columns[0]) - 1))
    own = require_count("label", label, low=0, high=count - 1) if columns[-1].dtype.kind in "iu" else _whole(label, count)
    return (*inputs, (own + 1) % count)


def blank(data: Data, *, label: Any) -> Record:
    """A record of zeros with that label."""
    *inputs, _ = record_of(require_data(data), 0)
    return (*(np.zeros_like(entry) for entry in inputs), label)


def random_directions(count: int, dimension: int, *, seed: int) -> FloatArray:
    """Unit vectors drawn uniformly, orthogonal to each other as far as the dimension allows.

    Args:
        count: m >= 1 of them.
        dimension: D >= 1.
        seed: whole number >= 0.
    Returns:
        Shape (m, D).
    """
    wanted = require_count("count", count, low=1, high=_MOST)
    width = require_count("dimension", dimension, low=1, high=_MOST)
    generator = np.random.default_rng(require_count("seed", seed, low=0, high=2**64))
    blocks: list[FloatArray] = []
    for first in range(0, wanted, width):
        drawn = generator.normal(size=(width, min(width, wanted - first)))
        # The signs make the distribution uniform: LAPACK fixes those of R's diagonal by itself.
        basis, corner = np.linalg.qr(drawn)
        blocks.append((basis * np.sign(np.diag(corner))).T)
    return np.concatenate(blocks)


def least_moved_direction(displacements: ArrayLike) -> FloatArray:
    r"""The unit vector along the coordinate that simulated trainings without the canary move least.

    Args:
        displacements: $\theta_T - \theta_0$ of the simulations, shape (B, D), $B \ge 2$; these runs must not be scored afterwards.
    Returns:
        Shape (D,).
    """
    moved = require_array("displacements", displacements, dimensions=2)
    if len(moved) < 2:
        raise outside("displacements", len(moved), "at least two simulated runs")
    direction = np.zeros(moved.shape[1])
    direction[int(np.argmin(np.mean(np.square(moved), axis=0)))] = 1.0
    return direction


def _whole(label: Any, classes: int) -> int:
    number = float(label)
    if number != int(number):
        raise outside("label", label, f"a class number from 0 to {classes - 1}")
    return require_count("label", int(number), low=0, high=classes - 1)

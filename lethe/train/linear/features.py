"""Features and targets as the trainer of linear models needs them.

Features are finite, projected to the public norm bound, with a constant feature for the intercept; targets are class numbers from a public
range, or finite real numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from lethe.errors import InputError
from lethe.partitions.on_dask.dask_tables import is_dask
from lethe.partitions.table import PartitionedTable
from lethe.run.losses.targets import class_targets, real_targets
from lethe.train.core.iterates import onto_ball

_CHUNK = 2**18  # entries that are held at 8 bytes at once


class Features(NamedTuple):
    """The design matrix, shape (n, d), or (n, d + 1) with the constant feature 1 last; and how many rows were longer than the bound."""

    rows: torch.Tensor
    projected: int


def prepare_features(values: Any, *, feature_norm: float, intercept: bool, dtype: torch.dtype, device: torch.device) -> Features:
    r"""Project every row on the ball of radius R and append the constant feature: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    The projection acts on each record alone, so it changes nothing in what neighbouring data sets are.

    Args:
        values: shape (n, d), numbers; anything NumPy or PyTorch can read.
        feature_norm: R > 0.
        intercept: whether to append the constant 1, after the projection: $\|(u, 1)\|^2 \le R^2 + 1$.
        dtype, device: of the result.
    Raises:
        InputError: not a table of numbers, no rows or no columns, or an entry that is NaN or infinite (named).
    """
    table = _as_stored("features", values)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"features: got shape {table.shape}; it needs a table with at least one row and one column.",
            remedy="give shape (records, features).",
        )
    count, columns = table.shape
    held = torch.ones(count, columns + (1 if intercept else 0), dtype=dtype)
    projected, size = 0, max(1, _CHUNK // columns)
    for first in range(0, count, size):
        part = table[first : first + size]
        part = part.double() if isinstance(part, torch.Tensor) else torch.from_numpy(part.astype(np.float64))
        _refuse_not_finite("features", part.numpy(), first)
        rows, outside = onto_ball(part, feature_norm, dtype=dtype)
        held[first : first + len(rows), :columns] = rows
        projected += int(outside.sum())
    return Features(held.to(device=device), projected)


def prepare_targets(values: Any, *, classes: int | None, records: int, device: torch.device) -> torch.Tensor:
    """The targets as a column of shape (n, 1): class numbers as int64, or real numbers as float64.

    Args:
        values: shape (n,), or (n, 1).
        classes: how many classes, numbered 0..classes-1; None: real numbers.
        records: n, the rows of the features.
        device: of the result.
    Raises:
        InputError: another shape, NaN or infinity, or a class number outside the public range (named).
    """
    given = numbers("targets", values)
    row = given[:, 0] if given.shape == (records, 1) else given
    found = real_targets(row, count=records) if classes is None else class_targets(row, count=records, classes=classes).astype(np.int64)
    return torch.from_numpy(found).unsqueeze(1).to(device)


def numbers(name: str, values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`values` as float64, of any shape; InputError for text, objects, complex numbers, rows of unequal length, NaN and infinity."""
    table = _as_stored(name, values)
    found = table.double().numpy() if isinstance(table, torch.Tensor) else table.astype(np.float64)
    _refuse_not_finite(name, found)
    return found


def _as_stored(name: str, values: Any) -> torch.Tensor | np.ndarray[Any, Any]:
    """Real numbers of any shape in the type they came in, not copied where they are an array or a tensor; InputError as `numbers`."""
    if is_dask(values) or isinstance(values, PartitionedTable):
        raise InputError(
            f"{name}: got {type(values).__name__}, a table in blocks; this needs one in memory.",
            source=f"the argument {name}",
            remedy="predict block by block, such as by frame.map_partitions(model.predict); lethe.train.fit of a Linear trains on it",
        )
    if isinstance(values, torch.Tensor):
        if not values.is_complex():
            return values.detach().cpu()
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: cannot be read as an array: {error}.", remedy="give rows of equal length, numbers only.") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: got type {array.dtype}; it needs real numbers.", remedy="encode text and categories as numbers first.")
    return array


def _refuse_not_finite(name: str, array: np.ndarray[Any, np.dtype[np.float64]], first: int = 0) -> None:
    """Name the first NaN or infinity by its index, where the rows of an array count from `first`."""
    finite = np.isfinite(array)
    if not finite.all():
        found = tuple(int(index) for index in np.argwhere(~finite)[0])
        place = ", ".join(map(str, (first + found[0], *found[1:])))
        raise InputError(
            f"{name}[{place}]: got {array[found]}; it needs a finite number (row {first + found[0]}, counted from 0).",
            remedy="drop or fill in missing values by a rule that does not look at other records.",
        )

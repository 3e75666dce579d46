"""Features as the trainer needs them: finite, projected to the public norm bound, with a constant feature for the intercept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.train.core.projection import onto_ball


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """The design matrix.

    Args:
        rows: shape (n, d), or (n, d + 1) with the constant feature 1 last.
        columns: d, the features that were given.
        projected: how many rows were longer than the bound.
    """

    rows: torch.Tensor
    columns: int
    projected: int


def prepare_features(values: Any, *, feature_norm: float, intercept: bool, dtype: torch.dtype, device: torch.device) -> Features:
    r"""Project every row on the ball of radius R and append the constant feature: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    The projection acts on each record alone, so it changes nothing in what neighbouring data sets are.

    Args:
        values: shape (n, d), numbers; anything NumPy or PyTorch can read.
        feature_norm: R > 0.
        intercept: whether to append the constant 1, after the projection: $\|(u, 1)\|^2 \le R^2 + 1$.
        dtype: of the result.
        device: of the result.
    Raises:
        InputError: not a table of numbers, no rows or no columns, or an entry that is NaN or infinite (named).
    """
    table = numbers("features", values)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"features: got shape {table.shape}; it needs a table with at least one row and one column.",
            remedy="give shape (records, features).",
        )
    refuse_not_finite("features", table)
    rows, outside = onto_ball(torch.tensor(table, dtype=torch.float64), feature_norm, dtype=dtype)
    if intercept:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    return Features(rows=rows.to(device=device, dtype=dtype), columns=table.shape[1], projected=int(outside.sum()))


def numbers(name: str, values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`values` as float64, of any shape.

    Raises:
        InputError: text, objects, complex numbers, or rows of unequal length.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().to(torch.float64).numpy() if not values.is_complex() else values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: cannot be read as an array: {error}.", remedy="give rows of equal length, numbers only.") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: got type {array.dtype}; it needs real numbers.", remedy="encode text and categories as numbers first.")
    return array.astype(np.float64)


def refuse_not_finite(name: str, array: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Raise InputError at the first entry that is NaN or infinite, by its 0-based index."""
    finite = np.isfinite(array)
    if not finite.all():
        first = tuple(int(index) for index in np.argwhere(~finite)[0])
        place = ", ".join(map(str, first))
        raise InputError(
            f"{name}[{place}]: got {array[first]}; it needs a finite number (row {first[0]}, counted from 0).",
            remedy="drop or fill in missing values by a rule that does not look at other records.",
        )

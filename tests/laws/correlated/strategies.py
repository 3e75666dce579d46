"""Strategies and participation patterns that several tests go through."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.correlated.matrices import blt_column, square_root

Array = Any

COLUMNS: dict[str, Array] = {
    "identity": square_root(12, 1),
    "two bands": np.array([1.0, 0.7] + [0.0] * 10),
    "square root": square_root(12),
    "buffers": blt_column((0.3, 0.1), (0.9, 0.3), 12),
    "increasing": np.linspace(0.2, 1.0, 12),
}


def random_triangular(random: np.random.Generator, steps: int, *, signed: bool) -> Array:
    matrix = np.tril(random.normal(size=(steps, steps)))
    matrix = matrix if signed else np.abs(matrix)
    matrix[np.diag_indices(steps)] = random.uniform(0.3, 1.5, size=steps)
    return matrix


def contributions_of(slot: int, slots: int, steps: int, vectors: Array) -> Array:
    """Zero but in the steps of the slot, shape (T, d)."""
    made = np.zeros((steps, vectors.shape[1]))
    made[slot::slots] = vectors[: len(made[slot::slots])]
    return made

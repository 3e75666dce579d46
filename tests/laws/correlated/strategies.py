"""Strategies and participation patterns that several tests go through, and runs with correlated noise."""

from pathlib import Path
from typing import Any

import numpy as np
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree, blt_column, inverse_column, square_root
from lethe.run.noise import LowerTriangular

Array = Any
DELTA = 1e-5
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}
INVERSE = {"kind": "banded_inverse", "coefficients": [1.2, -0.6, -0.4]}
PAIR = {"kind": "banded_inverse", "coefficients": [1.2, -0.9]}


COLUMNS: dict[str, Array] = {
    "identity": square_root(12, 1),
    "two bands": np.array([1.0, 0.7] + [0.0] * 10),
    "square root": square_root(12),
    "buffers": blt_column((0.3, 0.1), (0.9, 0.3), 12),
    "inverse": inverse_column((1.0, -0.5, -0.4), 12),
    "increasing": np.linspace(0.2, 1.0, 12),
}


def noises(folder: Path, steps: int = 6) -> list[Any]:
    """A strategy of each kind."""
    return [BANDED, BUFFERED, INVERSE, LowerTriangular.saved(binary_tree(steps), folder / "tree.npy")]


def correlated_run(noise: Any = BANDED, **changes: Any) -> lethe.Run:
    """Of a loss of which nothing is known, clipped to 1, every iterate released."""
    return make_run(**{"noise": noise, "clip_norm": 1.0, "loss": {"kind": "unknown"}, "release": "all", **changes})


def strategy_of(run: lethe.Run) -> Array:
    """C, as a matrix of its own."""
    assert run.noise is not None
    return as_matrix(run.noise.strategy(run.total_steps)).copy()


def without(run: lethe.Run, lost: slice) -> Array:
    """C as it is executed where the noise of some steps was lost: of a banded inverse the inverse has no entries below them."""
    banded = isinstance(run.noise, lethe.noise.BandedInverse)
    left = strategy_of(run)
    left = np.linalg.inv(left) if banded else left
    left[lost.stop :, lost] = 0.0
    return np.linalg.inv(left) if banded else left


def random_triangular(random: np.random.Generator, steps: int, *, signed: bool, bands: int | None = None) -> Array:
    matrix = np.tril(random.normal(size=(steps, steps)))
    matrix = matrix if signed else np.abs(matrix)
    matrix[np.diag_indices(steps)] = random.uniform(0.3, 1.5, size=steps)
    return matrix if bands is None else np.triu(matrix, 1 - bands)


def contributions_of(slot: int, slots: int, steps: int, vectors: Array) -> Array:
    """Zero but in the steps of the slot, shape (T, d)."""
    made = np.zeros((steps, vectors.shape[1]))
    made[slot::slots] = vectors[: len(made[slot::slots])]
    return made


def adaptive_losses(matrix: Array, sigma: float, slots: tuple[int, ...], period: int, *, backwards: bool) -> Array:
    """Draws of the privacy loss of all outputs to whoever turns a record's gradient by what was released, and knows its possible slots."""
    random, samples = np.random.default_rng(1), 200_000
    true, seen = random.choice(slots, size=samples), np.zeros((samples, len(matrix)))
    losses, given = np.zeros((len(slots), samples)), np.zeros((len(slots), samples, len(matrix)))
    for step in range(len(matrix)):
        answer = np.where(seen[:, :step].sum(axis=1) >= 0.0, 1.0, -1.0)
        for place, slot in enumerate(slots):
            given[place, :, step] = answer if step % period == slot else 0.0
        moved = given @ matrix[step] / sigma
        seen[:, step] = random.normal(size=samples)
        if not backwards:
            seen[:, step] += sum(np.where(true == slot, moved[place], 0.0) for place, slot in enumerate(slots))
        losses += seen[:, step] * moved - 0.5 * moved**2
    ratio = np.logaddexp.reduce(losses) - np.log(len(slots))
    return -ratio if backwards else ratio


def worth_the_name(losses: Array, epsilon: float, claimed: float, share: float) -> None:
    """The divergence that losses are draws for is within 5 standard errors at most what is claimed, and at least this share of it."""
    gains = np.maximum(-np.expm1(epsilon - losses), 0.0)
    assert share * claimed < gains.mean() <= claimed + 5 * gains.std() / np.sqrt(gains.size)

"""Mechanisms of known epsilon to audit, many audits of one, and what counts as too many bounds above the truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

Generator = np.random.Generator
Worlds = tuple[np.ndarray, np.ndarray]


def laplace(generator: Generator, runs: int) -> Worlds:
    """Laplace noise of scale 1 on 0 or 1: epsilon is 1 at delta 0."""
    return generator.laplace(size=runs), generator.laplace(loc=1.0, size=runs)


def gaussian(generator: Generator, runs: int, mu: float) -> Worlds:
    """N(0, 1) or N(mu, 1)."""
    return generator.normal(size=runs), generator.normal(loc=mu, size=runs)


def canaries(noise: np.ndarray, coins: np.ndarray, shift: float) -> np.ndarray:
    """Scores of canaries that do not interfere."""
    return noise + shift * coins


def repeated(audit: Callable[[Generator], float], *, times: int, seed: int) -> np.ndarray:
    """The epsilons of many audits, each with fresh runs."""
    generator = np.random.default_rng(seed)
    return np.array([audit(generator) for _ in range(times)])


def assert_valid(epsilons: np.ndarray, truth: float, level: float = 0.05) -> None:
    """Bounds above the truth are no more than a rate `level` explains, at one chance in 10^6."""
    above = int(np.count_nonzero(epsilons > truth))
    assert stats.binom.sf(above - 1, epsilons.size, level) > 1e-6, f"{above} of {epsilons.size} above {truth}, at level {level}"


def assert_invalid(epsilons: np.ndarray, truth: float, level: float = 0.05) -> None:
    """Bounds above the truth are more than a rate `level` explains, at one chance in 10^6."""
    above = int(np.count_nonzero(epsilons > truth))
    assert stats.binom.sf(above - 1, epsilons.size, level) < 1e-6, f"{above} of {epsilons.size} above {truth}, at level {level}"


def assert_powerful(epsilons: np.ndarray, expected: float, *, of: int) -> None:
    """The mean is not below `expected`, itself the mean of `of` audits, by more than three standard errors of the difference.

    5e-3 is the rounding of a table with two decimals.
    """
    error = float(epsilons.std(ddof=1)) * (1.0 / epsilons.size + 1.0 / of) ** 0.5
    assert epsilons.mean() >= expected - 3.0 * error - 5e-3, f"mean {epsilons.mean():.4f}; expected {expected} +- {error:.4f}"

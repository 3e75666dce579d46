"""Joint schedules of cyclic batches to solve: random ones of every kind, rising weights, and what their noise proves."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.noise_allocation.joint.cyclic import joint_cyclic
from lethe.noise_allocation.joint.problem import CyclicJoint, joint_problem
from lethe.theorems.shuffled import positions


def rising(rate: float, steps: int) -> np.ndarray:
    """q_t = rate^(T - t)."""
    return rate ** np.arange(steps)[::-1].astype(np.float64)


def instance(seed: int) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, int], dict[str, Any]]:
    """Runs of every kind: expanding, contracting, forgetting, untouched steps, masks, floors, partial last passes."""
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(1, 50)), int(generator.integers(1, 9))
    factors = generator.uniform(0.85, 1.1, steps) if seed % 2 else np.full(steps, generator.choice([0.9, 1.0, 1.05]))
    if seed % 6 == 0:
        factors[generator.integers(0, steps)] = 0.0
    touches = generator.uniform(0, 1, steps) * (generator.random(steps) < 0.85)
    weights = generator.uniform(0.1, 1, steps) if seed % 3 else generator.uniform(0.9, 1.02) ** np.arange(steps)
    options: dict[str, Any] = {"mu": float(generator.uniform(0.3, 3))}
    if seed % 4 in (1, 2):
        noisy = generator.random(steps) < 0.5 if seed % 4 == 1 else (np.arange(steps) + 1) % size == 0
        noisy[-1] = True
        options["noisy"] = noisy
    if seed % 5 > 2:
        options["floor"] = 10 ** generator.uniform(-3, -1, steps) if seed % 2 else float(10 ** generator.uniform(-3, -1))
    return (weights, factors, touches, size), options


def mu_of(run: tuple[np.ndarray, np.ndarray, np.ndarray, int], noise: np.ndarray, diameter: Any = None) -> float:
    _, factors, touches, size = run
    return positions.worst_position(factors, touches, noise, size, diameter)[0]


def gap(found: CyclicJoint) -> float:
    return 0.0 if found.value == 0.0 else 1.0 - found.lower_bound / found.value


def solved(*run: Any, **options: Any) -> CyclicJoint:
    return joint_cyclic(joint_problem(*run, **options))

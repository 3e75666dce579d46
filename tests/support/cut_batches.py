"""The exact laws of batches that are cut, in small cases: every draw and every cut."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
from scipy import stats

from lethe.run.run import Neighbours, Run

NOISE = 0.6
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)
RELATIONS: tuple[Neighbours, ...] = ("replace_one", "zero_out", "add_or_remove")
GRID = 1e-5  # what the rectangle rule leaves at the kink of (.)_+: less than h^2/8 of a jump in slope

Law = dict[tuple[float, ...], float]


def cut_run(design: str = "poisson", *, records: int = 4, size: int = 1, cap: int | None = None, **changes: Any) -> Run:
    """The run of the mechanism: every iterate released, gradients of norm at most 1, noise 0.6."""
    batches = {"design": design, "size": size} | ({} if cap is None else {"truncate_at": cap})
    fields: dict[str, Any] = {"step_size": 1.0, "clip_norm": 1.0, "noise_multiplier": NOISE, "release": "all", "neighbours": "replace_one"}
    if "passes" not in changes:
        fields["steps"] = 1
    return Run(records=records, batches=batches, **{**fields, **changes})


def neighbours(others: list[float], relation: Neighbours) -> list[tuple[list[float], list[float]]]:
    """The record pushes up; it is replaced by one that pushes down, zeroed out, or absent. Both orders."""
    changed = {"replace_one": [[1.0], [-1.0]], "zero_out": [[1.0], [0.0]], "add_or_remove": [[1.0], []]}[relation]
    return [(others + changed[0], others + changed[1]), (others + changed[1], others + changed[0])]


def cut_sums(values: list[float], cap: int) -> list[tuple[float, float]]:
    """(sum, probability) over the uniform choices of `cap` of the values; all of them if they are no more."""
    kept = list(combinations(values, min(cap, len(values))))
    return [(sum(some), 1.0 / len(kept)) for some in kept]


def poisson_law(values: list[float], chance: float, cap: int, steps: int) -> Law:
    """The law of the means of `steps` independent steps."""
    one: dict[float, float] = {}
    for coins in product((0, 1), repeat=len(values)):
        weight = chance ** sum(coins) * (1 - chance) ** (len(coins) - sum(coins))
        for mean, share in cut_sums([value for value, coin in zip(values, coins, strict=True) if coin], cap):
            one[mean] = one.get(mean, 0.0) + weight * share
    law: Law = {}
    for path in product(one.items(), repeat=steps):
        key = tuple(mean for mean, _ in path)
        law[key] = law.get(key, 0.0) + float(np.prod([weight for _, weight in path]))
    return law


def bins_law(values: list[float], bins: int, cap: int) -> Law:
    """The law of the means of one pass."""
    law: Law = {}
    for thrown in product(range(bins), repeat=len(values)):
        held = [[value for value, place in zip(values, thrown, strict=True) if place == number] for number in range(bins)]
        for path in product(*(cut_sums(one, cap) for one in held)):
            key = tuple(mean for mean, _ in path)
            law[key] = law.get(key, 0.0) + bins ** -len(values) * float(np.prod([share for _, share in path]))
    return law


def last_of(law: Law) -> Law:
    """The law of the sum of all steps, which is what the last iterate of linear losses tells."""
    total: Law = {}
    for path, weight in law.items():
        key = (sum(path),)
        total[key] = total.get(key, 0.0) + weight
    return total


def hockey_sticks(first: Law, second: Law, noise: float = NOISE) -> list[float]:
    r"""$\int (p - e^\epsilon q)_+$ at all EPSILONS, in one or two dimensions, by the rectangle rule."""
    dimension = len(next(iter(first)))
    axis, step = np.linspace(-8.0, 8.0, {1: 16_001, 2: 1_201}[dimension], retstep=True)
    densities = [density(law, axis, noise) for law in (first, second)]
    volume = step**dimension
    return [float(np.maximum(densities[0] - np.exp(epsilon) * densities[1], 0.0).sum() * volume) for epsilon in EPSILONS]


def density(law: Law, axis: np.ndarray, noise: float) -> np.ndarray:
    means = sorted({mean for path in law for mean in path})
    normals = stats.norm.pdf(axis, np.array(means)[:, None], noise)
    weights = np.zeros((len(means),) * len(next(iter(law))))
    for path, weight in law.items():
        weights[tuple(means.index(mean) for mean in path)] += weight
    return normals.T @ (weights if weights.ndim == 1 else weights @ normals)


def tail(count: int, chance: Fraction, least: int) -> Fraction:
    return sum((comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(least, count + 1)), Fraction(0))

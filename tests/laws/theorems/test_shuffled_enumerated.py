"""Shuffled runs with noise that is missing, tiny or huge, against the mean over every sequence of positions, in rational arithmetic."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import inf, isqrt
from typing import Any

import numpy as np
import pytest
from how_many import by_night
from numpy.typing import ArrayLike
from oracles import gaussian_delta

import lethe
from lethe.theorems.steps import step_constants


def positions(steps: int, size: int) -> Iterator[list[int]]:
    """The steps that touch the record, from 0, for each equally likely sequence of its positions."""
    for places in product(range(size), repeat=-(-steps // size)):
        yield [t for t in (e * size + place for e, place in enumerate(places)) if t < steps]


def path_mus(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, size: int) -> list[float]:
    """The optimal shift of each sequence of positions."""
    factors, touches, noise = ([Fraction(float(x)) for x in np.asarray(values, float)] for values in (lipschitz, sensitivity, noise_std))
    across, rises, weight = [Fraction(0)], list[Fraction](), Fraction(1)
    for t in range(len(factors) - 1, -1, -1):  # from the end of the run, where the weight is 1, backward
        across.append(across[-1] - (weight * noise[t]) ** 2)
        rises.append(weight * touches[t])
        weight *= factors[t]
    return [_path_mu(across[::-1], rises[::-1], touched) for touched in positions(len(factors), size)]


def _path_mu(across: Sequence[Fraction], rises: Sequence[Fraction], touched: Sequence[int]) -> float:
    """One path, rounded down by less than 1e-15: the convex minorant of its points; inf where a rise has no run."""
    points = [(across[-1], Fraction(0))]
    for t in range(len(rises) - 1, -1, -1):
        points.append((across[t], points[-1][1] - rises[t] if t in touched else points[-1][1]))
    points.reverse()
    hull: list[tuple[Fraction, Fraction]] = []
    for place, (x, y) in enumerate(points):
        # A touch without noise is a vertical line, of which the minorant keeps the lower end, but for the last point of all.
        if hull and hull[-1][0] == x and place < len(points) - 1:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (y - hull[-1][1]) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    squared = Fraction(0)
    for (x, y), (u, v) in pairwise(hull):
        if v > y and u == x:
            return inf
        squared += (v - y) ** 2 / (u - x) if v > y else 0
    # A root of 60 bits, whatever the size of the number.
    bits = max(0, 130 - (squared.numerator.bit_length() - squared.denominator.bit_length())) // 2 * 2 if squared else 0
    root = Fraction(isqrt((squared.numerator << bits) // squared.denominator), 1 << (bits // 2))
    return float(root) if root < Fraction(1e308) else inf


def least_delta(mus: Sequence[float], epsilon: float) -> float:
    """The mean over all paths of the delta of the optimal shift: below it no accounting by shifts may go."""
    return float(gaussian_delta(mus, epsilon).mean())


DELTA = 1e-5
NOISES = (0.0, 1e-6, 1.0, 3e5, 1e17, 1e140)
LOSSES: tuple[dict[str, Any], ...] = (
    {"kind": "convex", "smoothness": 1.0},
    {"kind": "smooth", "smoothness": 1.0},
    {"kind": "convex", "smoothness": 1e-250},
)


def shuffled(slots: int, passes: int, noise: tuple[float, ...], **changes: Any) -> lethe.Run:
    """Four records a batch."""
    fields: dict[str, Any] = {
        "records": 4 * slots,
        "batches": {"design": "shuffled", "size": 4},
        "passes": passes,
        "step_size": 1.0,
        "clip_norm": 1.0,
        "noise_at": "pass_ends",
        "noise_multiplier": list(noise),
        "loss": LOSSES[0],
        "release": "last",
        "neighbours": "replace_one",
    }
    if "steps" in changes:
        fields.pop("passes")
    return lethe.Run(**{**fields, **changes})


def assert_not_below_the_truth(run: lethe.Run) -> None:
    steps = step_constants(run)
    assert steps is not None

    mus = path_mus(steps.lipschitz, run.sensitivities, run.noise_stds, run.steps_per_pass)
    certificate = lethe.certify(run, DELTA)
    assert certificate.epsilon == inf or least_delta(mus, certificate.epsilon) <= DELTA * (1 + 1e-9), run.to_document()
    for epsilon in (0.0, 1.0, 20.0):
        assert certificate.guarantee.delta(epsilon) >= min(least_delta(mus, epsilon), 1.0) * (1 - 1e-9) - 1e-15, run.to_document()


@cache
def enumerated() -> tuple[lethe.Run, ...]:
    runs = [
        shuffled(slots, passes, noise, neighbours=relation, loss=loss)
        for slots, passes in ((1, 2), (2, 2), (2, 3), (3, 2), (4, 2), (5, 2), (3, 3))
        for noise in product(NOISES, repeat=passes)
        for relation in ("replace_one", "zero_out")
        for loss in LOSSES
    ]
    runs += [
        shuffled(slots, 0, noise, steps=steps, noise_at="every_step")
        for slots, steps in ((2, 3), (2, 4), (3, 4))
        for noise in product((0.0, 1e-6, 1.0, 3e5, 1e140), repeat=steps)
    ]
    return tuple(runs)


def test_runs_of_every_kind() -> None:
    """One in 29, or in 587 by day: prime, so that every noise, relation and loss comes with every other. Each of all was compared once."""
    for run in enumerated()[:: 29 if by_night() else 587]:
        assert_not_below_the_truth(run)


# 200 batches of 1, in two passes of which the first has no noise. Steps expand by 1.1, so a touch may have grown by 1.1^399.
EXPANDING: dict[str, Any] = {
    "records": 200,
    "batches": {"design": "shuffled", "size": 1},
    "step_size": 0.1,
    "loss": {"kind": "smooth", "smoothness": 1.0},
}


def test_a_fresh_order_of_expanding_steps_is_no_better_than_a_kept_one() -> None:
    """A touch in the last pass alone is the same in both designs; what the first pass adds can only cost more."""
    run = shuffled(1, 2, (0.0, 1e17), **EXPANDING)
    last_pass = [0.1 * 2 * 1.1 ** (200 - j) / (0.1 * 1e17) for j in range(1, 201)]
    truth = lethe.guarantees.GDPMixture(tuple(last_pass), (1 / 200,) * 200)
    kept = lethe.certify(run.replace(batches={"design": "shuffled_once", "size": 1}), DELTA).epsilon
    assert kept == pytest.approx(1.8104724, abs=1e-6)
    certificate = lethe.certify(run, DELTA)
    assert certificate.epsilon >= truth.epsilon(DELTA)
    assert certificate.epsilon >= 0.9 * kept
    # Both touches pay at the end, and the first is the larger one by far: the law of its position is that of one order.
    first = [0.1 * 2 * 1.1 ** (400 - j) / (0.1 * 1e17) for j in range(1, 201)]
    assert certificate.guarantee.delta(1.0) >= lethe.guarantees.GDPMixture(tuple(first), (1 / 200,) * 200).delta(1.0) * (1 - 1e-9)

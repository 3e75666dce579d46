"""Lowy & Razaviyayn 2023, Propositions 16, 17 and 38 to 40, by going through all data sets of a few records."""

import itertools

import numpy as np
import pytest

POINTS = np.array([-0.8, 0.1, 1.5])  # records that there can be; the loss is |w - x| or max(0, w x), on W = [-1, 1]
CHANCES = np.array([0.2, 0.5, 0.3])
LOSSES = {
    "distance": (lambda w, x: abs(w - x), lambda w, x: 1.0, lambda xs: xs),
    "hinge": (lambda w, x: max(0.0, w * x), lambda w, x: abs(x), lambda xs: np.zeros(1)),
}


def _minimiser(value, breaks: np.ndarray, start: float, strength: float, slopes: np.ndarray) -> float:
    """Of a mean of piecewise linear losses plus (strength/2)(w - start)^2 on [-1, 1]: a break, an end or a free stationary point."""
    candidates = np.clip(np.concatenate([breaks, [-1.0, 1.0], start - slopes / strength]), -1.0, 1.0)
    return min(candidates.tolist(), key=value)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("records", "strength", "start"), [(1, 0.5, 0.3), (3, 2.0, -0.5), (4, 0.7, 0.9)])
def test_stable_algorithms_generalise_and_regularised_minimisers_are_stable(name: str, records: int, strength: float, start: float) -> None:
    loss, size, breaks = LOSSES[name]
    sets = list(itertools.product(range(3), repeat=records))
    weights = {data: float(np.prod(CHANCES[list(data)])) for data in sets}
    solutions = {}
    for data in sets:
        xs = POINTS[list(data)]
        each = np.array(list(itertools.product(*[(0.0, x) if name == "hinge" else (-1.0, 1.0) for x in xs]))).mean(axis=1)

        def value(w: float, xs: np.ndarray = xs) -> float:
            return float(np.mean([loss(w, x) for x in xs])) + strength / 2 * (w - start) ** 2

        solutions[data] = _minimiser(value, breaks(xs), start, strength, each)
        assert value(solutions[data]) <= min(map(value, np.linspace(-1, 1, 401))) + 1e-12

    def risk(w: float) -> float:
        return float(sum(p * loss(w, x) for p, x in zip(CHANCES, POINTS, strict=True)))

    gap = sum(weights[data] * (risk(solutions[data]) - np.mean([loss(solutions[data], POINTS[i]) for i in data])) for data in sets)
    square = 0.0  # of the stability: one record replaced by a fresh one
    for data, place, fresh in itertools.product(sets, range(records), range(3)):
        other = (*data[:place], fresh, *data[place + 1 :])
        square += weights[data] * CHANCES[fresh] * (solutions[data] - solutions[other]) ** 2 / records
    second = max(float(sum(p * size(w, x) ** 2 for p, x in zip(CHANCES, POINTS, strict=True))) for w in (-1.0, 0.0, 1.0))
    assert 0.0 < gap <= np.sqrt(second * square)  # Propositions 16, 38 at the best zeta
    assert all(gap <= second / (2 * zeta) + zeta / 2 * square for zeta in np.geomspace(1e-3, 1e3, 61))
    assert np.sqrt(square) <= 2 * np.sqrt(second) / (strength * records)  # in the proof of Proposition 39
    assert gap <= 2 * second / (strength * records)  # 39, with the moment of the loss alone
    mean = sum(weights[data] * risk(solutions[data]) for data in sets)
    for y in np.linspace(-1.0, 1.0, 41):  # 17, 40
        assert mean - risk(y) <= 2 * second / (strength * records) + strength / 2 * (y - start) ** 2


def test_the_stability_bound_is_within_the_root_of_two_for_linear_losses() -> None:
    """f = -w x, x = -1 or 1, n = 1: w = x/lambda, gap 1/lambda, stability 2/lambda^2, r = 1; and 2 r^2/(lambda n) is twice the gap."""
    strength, signs = 2.0, np.array([-1.0, 1.0])
    gap = np.mean([-0.0 * x + x / strength * x for x in signs])
    square = np.mean([(x - y) ** 2 / strength**2 for x in signs for y in signs])
    assert gap == pytest.approx(np.sqrt(square) / np.sqrt(2.0)) == pytest.approx(0.5 * 2.0 / strength)

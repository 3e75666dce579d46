"""Noisy moments of rows, channels and columns: how far a record moves them by brute force, and the law of the noise."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from lethe.accounting.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.mechanisms.moments import channel_moments, channel_sensitivity, moment_sensitivity, second_moment
from lethe.mechanisms.standardise import contributions, moment_weight, standardise

BOTH = pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
SMALL_NOISE = GDP(1e9)


def coordinates(matrix: np.ndarray) -> np.ndarray:
    """In the orthonormal basis of symmetric matrices: diagonal entries, and those above it times the root of 2."""
    return np.concatenate([np.diag(matrix), math.sqrt(2.0) * matrix[np.triu_indices(len(matrix), 1)]])


def weighed(made: Any, count: int, norm: float, positions: int, weight: float) -> np.ndarray:
    """The released sum where its noise is isotropic: a m, and the coordinates of the second moment."""
    return np.concatenate([math.sqrt(weight / positions) * norm * count * made.mean, coordinates(count * made.second_moment)])


def contribution(row: np.ndarray, channels: int, norm: float, weight: float) -> np.ndarray:
    """phi of one record, as the mechanism itself computes it."""
    made = channel_moments(row[None], channels=channels, norm=norm, target=GDP(1.0), mean_weight=weight, generator=Constant(0.0))
    return weighed(made, 1, norm, row.size // channels, weight)


@given(
    channels=st.integers(1, 4),
    positions=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    norm=st.floats(0.1, 10.0),
    weight=st.floats(0.01, 2.0),
)
def test_no_pair_of_records_moves_them_further(channels: int, positions: int, seed: int, norm: float, weight: float) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(2, channels, positions)) * 10.0 ** generator.uniform(-2, 2)
    if seed % 2:  # about the same at every position, and the other one about the opposite
        rows = rows[:, :, :1] + 0.1 * rows
        rows[1] -= 2.0 * generator.random() * rows[0]
    one, two = (contribution(row.ravel(), channels, norm, weight) for row in rows)
    rounding = 1.0 + 1e-12
    assert np.linalg.norm(one - two) <= channel_sensitivity(norm, positions, "replace_one", weight, channels=channels) * rounding
    assert np.linalg.norm(one) <= channel_sensitivity(norm, positions, "zero_out", weight, channels=channels) * rounding


@pytest.mark.parametrize("weight", [0.01, 0.5, 2.0])
def test_the_sensitivities_are_reached(weight: float) -> None:
    """By records with one value at all positions, at the cosine -weight/2."""
    norm, positions, cosine = 3.0, 5, -weight / 2.0
    radius = norm / math.sqrt(positions)
    one, two = (
        contribution(np.repeat(radius * np.array(value), positions), 2, norm, weight)
        for value in ([1.0, 0.0], [cosine, math.sqrt(1.0 - cosine**2)])
    )
    assert np.linalg.norm(one - two) == pytest.approx(channel_sensitivity(norm, positions, "replace_one", weight), rel=1e-9)
    assert np.linalg.norm(one) == pytest.approx(channel_sensitivity(norm, positions, "zero_out", weight), rel=1e-9)


@pytest.mark.parametrize("weight", [0.01, 0.2, 0.35, 0.5, 0.51, 2.0])
def test_of_one_channel_the_furthest_pair_of_a_grid_comes_to_the_bound(weight: float) -> None:
    """Phi by its definition, of records with the same value at every position; one per cent less would be too small."""
    norm, positions = 3.0, 2
    values = np.linspace(-1.0, 1.0, 2001) * norm / math.sqrt(positions)
    phi = np.stack([math.sqrt(weight / positions) * norm * values, values**2])
    furthest = max(np.linalg.norm(phi - one[:, None], axis=0).max() for one in phi.T)
    bound = channel_sensitivity(norm, positions, "replace_one", weight, channels=1)
    assert furthest <= bound * (1.0 + 1e-12)
    assert furthest == pytest.approx(bound, rel=1e-6)
    assert np.linalg.norm(phi, axis=0).max() == pytest.approx(
        channel_sensitivity(norm, positions, "zero_out", weight, channels=1), rel=1e-12
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weight", [0.1, 0.5])
def test_a_search_over_all_pairs_finds_no_further_ones(weight: float) -> None:
    """Over values at every position, from many starts, phi by its definition: it comes to the bound, and not beyond it."""
    generator, channels, positions = np.random.default_rng(3), 3, 2

    def minus_distance(values: np.ndarray) -> float:
        phis = []
        for record in values.reshape(2, positions, channels):
            near = record / max(1.0, math.sqrt(np.square(record).sum()))  # at most 1 as one row, so R^2 = 1/P
            phis.append(np.concatenate([math.sqrt(weight / positions) * near.mean(axis=0), (near.T @ near / positions).ravel()]))
        return -float(np.linalg.norm(phis[0] - phis[1]))

    starts = generator.normal(size=(5, 2 * channels * positions))
    found = max(-optimize.minimize(minus_distance, start, method="BFGS").fun for start in starts)
    assert found == pytest.approx(channel_sensitivity(1.0, positions, "replace_one", weight), rel=1e-4)
    assert found <= channel_sensitivity(1.0, positions, "replace_one", weight) * (1.0 + 1e-12)


def stored(count: int, neighbours: Any, **changes: Any) -> Statement:
    """A statement of so many channels as it is read from a file, with other numbers."""
    rows = np.full((5, count), 0.5)
    made = channel_moments(rows, channels=count, norm=1.0, target=GDP(0.5), records=5, neighbours=neighbours, mean_weight=0.35)
    content = made.statement.to_dict()
    content["derivation"]["parameters"] |= changes
    return Statement.from_dict(content)


@BOTH
@pytest.mark.parametrize("channels", [1, 2])
def test_a_stored_statement_is_about_as_many_channels_as_it_says(channels: int, neighbours: Any) -> None:
    recheck_statement(stored(channels, neighbours))
    for wrong in (0, -1, True, 1.0, "1", None, [1]):
        with pytest.raises(InputError, match="does not follow"):
            recheck_statement(stored(channels, neighbours, channels=wrong))
    if neighbours == "replace_one":
        with pytest.raises(InputError, match="it claims epsilon"):
            recheck_statement(stored(channels, neighbours, channels=3 - channels))


def test_an_older_statement_of_one_channel_keeps_its_guarantee() -> None:
    """It named no channels, and its noise was that of several."""
    content = stored(1, "replace_one").to_dict()
    del content["derivation"]["parameters"]["channels"]
    content["derivation"]["parameters"]["noise_std"] = (2.35 / math.sqrt(2.0)) / 0.5
    assert mu_of(recheck_statement(Statement.from_dict(content)).statement.guarantee) == pytest.approx(0.5, rel=1e-9)


def furthest(channels: int, weight: float, neighbours: str) -> tuple[list[float], list[float]]:
    """Of the records of one value at all positions two that move the sums furthest, in units of the radius."""
    if neighbours == "zero_out":
        return [1.0, 0.0][:channels], [0.0, 0.0][:channels]
    if channels == 1:
        return [1.0], [-0.5 + 0.5 * math.sqrt(1.0 - 2.0 * weight) if weight <= 0.5 else -1.0]
    return [1.0, 0.0], [-weight / 2.0, math.sqrt(1.0 - weight**2 / 4.0)]


@BOTH
@pytest.mark.parametrize(("channels", "weight"), [(1, 0.35), (1, 1.0), (2, 0.2), (2, 0.5), (2, 2.0)])
def test_mu_is_how_far_a_record_moves_over_the_noise_that_is_there(channels: int, weight: float, neighbours: Any) -> None:
    """From what is released alone: noise one per cent too small, of the mean or of the second moments, would fail."""
    positions, norm = 4, 2.0
    radius = norm / math.sqrt(positions)
    first, second = (np.repeat(radius * np.array(value), positions) for value in furthest(channels, weight, neighbours))
    rows, other = np.zeros((2, 6, channels * positions))
    rows[0], other[0] = first, second
    options = {"channels": channels, "norm": norm, "target": GDP(0.5), "neighbours": neighbours, "records": 6, "mean_weight": weight}
    quiet, moved, noisy = (
        channel_moments(one, generator=Constant(value), **options) for one, value in ((rows, 0.0), (other, 0.0), (rows, 1e-9))
    )
    one, two, shaken = (weighed(made, 6, norm, positions, weight) for made in (quiet, moved, noisy))
    distance = np.linalg.norm(one - two)
    # Of two draws for an entry off the diagonal each makes half of it, times the root of 2: a constant for both is the root of 2.
    np.testing.assert_allclose((shaken - one) / 1e-9 / [1.0, 1.0, 1.0, 1.0, math.sqrt(2.0)][: one.size], distance / 0.5, rtol=1e-5)
    assert 0.5 * (1 - 1e-12) <= mu_of(noisy.statement.planned) <= 0.5
    assert (6 * noisy.noise_std, 6 * noisy.mean_noise_std * math.sqrt(weight) * radius) == pytest.approx((distance / 0.5, distance / 0.5))


class OneEntry(np.random.Generator):
    """Draws that are 0 but for one of all, which is tiny: so that no mean is cut."""

    def __init__(self, place: int) -> None:
        super().__init__(np.random.PCG64(0))
        self._place = place

    def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        drawn = np.zeros(size)
        if 0 <= self._place < drawn.size:
            drawn.flat[self._place] = 1e-6
        self._place -= drawn.size
        return drawn


@BOTH
def test_the_noise_is_isotropic_and_independent(neighbours: Any) -> None:
    """It is linear in the draws, so what each makes of it gives the covariance without any sampling."""
    options = {"channels": 3, "norm": 1.0, "target": GDP(0.25), "neighbours": neighbours, "records": 4}
    moved = [weighed(channel_moments(np.zeros((4, 6)), generator=OneEntry(place), **options), 4, 1.0, 2, 0.5) for place in range(12)]
    covariance = np.array(moved).T @ np.array(moved) / 1e-12
    sensitivity = channel_sensitivity(1.0, 2, neighbours, 0.5)
    np.testing.assert_allclose(covariance, (sensitivity / 0.25) ** 2 * np.eye(9), rtol=1e-9, atol=1e-9)


@BOTH
def test_without_noise_they_are_numpys(neighbours: Any) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal([1.0, -0.5, 0.0], [1.0, 2.0, 0.5], size=(300, 7, 3))
    rows = values.transpose(0, 2, 1).reshape(300, -1)  # channels first
    made = channel_moments(rows, channels=3, norm=1e3, target=GDP(1e9), neighbours=neighbours, records=300)
    np.testing.assert_allclose(made.mean, values.mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_allclose(made.covariance, np.cov(values.reshape(-1, 3).T, bias=True), atol=1e-3)
    single = channel_moments(rows.astype(np.float32), channels=3, norm=1e3, target=GDP(1e9), neighbours=neighbours, records=300)
    np.testing.assert_allclose(single.mean, made.mean, atol=1e-5)


def test_records_are_projected_and_the_mean_is_in_the_ball() -> None:
    made = channel_moments(1e6 * np.ones((50, 8)), channels=2, norm=2.0, target=GDP(1e9))
    np.testing.assert_allclose(made.mean, np.full(2, 2.0 / math.sqrt(8)), atol=1e-6)
    for _ in range(20):
        assert np.linalg.norm(channel_moments(np.ones((3, 8)), channels=2, norm=2.0, target=GDP(0.01)).mean) <= 1.0 + 1e-12
    empty = channel_moments(np.zeros((0, 4)), channels=2, norm=1.0, target=GDP(1e9), neighbours="zero_out", records=5)
    np.testing.assert_allclose(empty.second_moment, 0.0, atol=1e-6)


# --- second moments of rows ---


@given(st.integers(1, 4), st.integers(0, 10_000), st.floats(0.1, 10.0))
def test_no_pair_of_rows_moves_the_matrix_further(columns: int, seed: int, norm: float) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(2, columns)) * 10.0 ** generator.uniform(-3, 3)
    one, other = (second_moment(row[None, :], norm=norm, target=SMALL_NOISE, generator=generator).matrix for row in rows)
    rounding = 1e-7 * norm**2  # the small noise
    assert np.linalg.norm(one - other) <= moment_sensitivity(norm, columns, "replace_one") + rounding
    assert np.linalg.norm(one) <= moment_sensitivity(norm, columns, "zero_out") + rounding


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_sensitivity_of_second_moments_is_reached(columns: int) -> None:
    axes = np.eye(columns) * 3.0
    one = np.outer(axes[0], axes[0])
    other = np.outer(axes[-1], axes[-1]) if columns > 1 else np.zeros((1, 1))
    assert np.linalg.norm(one - other) == pytest.approx(moment_sensitivity(3.0, columns, "replace_one"), rel=1e-12)
    assert np.linalg.norm(one) == pytest.approx(moment_sensitivity(3.0, columns, "zero_out"), rel=1e-12)


@pytest.mark.parametrize(("neighbours", "sensitivity"), [("replace_one", math.sqrt(2.0) * 9.0), ("zero_out", 9.0)])
def test_the_noise_of_second_moments_is_isotropic_and_the_sensitivity_over_mu(neighbours: Any, sensitivity: float) -> None:
    options = {"norm": 3.0, "target": GDP(0.5), "neighbours": neighbours, "records": 4}
    made = [second_moment(np.zeros((4, 3)), generator=OneEntry(place), **options) for place in range(9)]
    moved = np.array([coordinates(one.matrix) for one in made]) / 1e-6
    assert moved.T @ moved == pytest.approx((sensitivity / 0.5) ** 2 * np.eye(6), rel=1e-9, abs=1e-9)
    assert sensitivity / 0.5 <= made[0].noise_std <= sensitivity / 0.5 * (1 + 1e-9)
    assert 0.5 * (1 - 1e-6) <= mu_of(made[0].statement.planned) <= 0.5


# --- mean and scale of columns ---

CORNERS = np.array(list(itertools.product([-3.0, 0.0, 1.0, 9.0], repeat=3)))


def widest(phi: np.ndarray, neighbours: str) -> float:
    """The largest distance of two of the rows, or the largest length."""
    if neighbours == "zero_out":
        return float(np.linalg.norm(phi, axis=1).max())
    return math.sqrt(max(np.square(phi - phi[index]).sum(axis=1).max() for index in range(len(phi))))


@pytest.mark.parametrize(("neighbours", "sensitivity"), [("replace_one", 2.0), ("zero_out", 1.0)])
def test_no_record_moves_the_columns_further_than_stated_and_the_weight_is_the_largest(neighbours: Any, sensitivity: float) -> None:
    phi = contributions(np.linspace(-1.0, 1.0, 801)[:, None], np.array([-1.0]), np.array([1.0]), neighbours)[:, :, 0]
    assert widest(phi, neighbours) <= sensitivity * (1 + 1e-12)
    assert widest(phi * np.array([1.0, 1.01]), neighbours) > sensitivity * 1.00005
    phi = contributions(CORNERS, np.array([-3.0, 0.0, 0.5]), np.array([9.0, 1.0, 1.0]), neighbours).reshape(len(CORNERS), -1)
    stated = sensitivity * math.sqrt(3.0)
    assert 0.999 * stated < widest(phi, neighbours) <= stated * (1.0 + 1e-12)
    assert moment_weight("replace_one") ** 2 == pytest.approx(((1 + math.sqrt(5)) / 2) ** 5 / 4)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
    neighbours=st.sampled_from(["replace_one", "zero_out"]),
    low=st.floats(-1e3, 1e3),
    width=st.floats(1e-3, 1e3),
)
def test_no_pair_of_records_moves_two_columns_further(values: list[float], neighbours: Any, low: float, width: float) -> None:
    phi = contributions(np.array(values).reshape(2, 2), np.full(2, low), np.full(2, low + width), neighbours).reshape(2, -1)
    assert widest(phi, neighbours) <= (2.0 if neighbours == "replace_one" else 1.0) * math.sqrt(2.0) * (1.0 + 1e-14)


@pytest.mark.parametrize(("neighbours", "sensitivity"), [("replace_one", 2.0), ("zero_out", 1.0)])
def test_the_noise_of_columns_is_the_sensitivity_over_mu(neighbours: Any, sensitivity: float) -> None:
    rows = np.zeros((100, 4))
    rows[:50] = 1.0
    options = {"low": -2.0, "high": 2.0, "target": GDP(0.5), "neighbours": neighbours, "records": 100}
    quiet, noisy = (standardise(rows, generator=Constant(value), **options) for value in (0.0, 1.0))
    assert noisy.mean - quiet.mean == pytest.approx(2.0 * sensitivity * math.sqrt(4.0) / 0.5 / 100.0, rel=1e-9)
    assert 0.5 * (1 - 1e-12) <= mu_of(noisy.statement.planned) <= 0.5


@BOTH
def test_without_noise_it_is_the_usual_standardisation(neighbours: Any) -> None:
    rows = np.random.default_rng(0).normal([1.0, -2.0], [0.5, 3.0], size=(5000, 2))
    made = standardise(rows, low=[-5, -30], high=[5, 30], target=GDP(1e6), neighbours=neighbours, records=5000)
    assert made.mean == pytest.approx(rows.mean(axis=0), abs=1e-3)
    assert made.scale == pytest.approx(rows.std(axis=0), rel=1e-2)
    if neighbours == "zero_out":  # records that are absent leave n as it is
        fewer = standardise(rows[1:], low=[-5, -30], high=[5, 30], target=GDP(1e6), neighbours=neighbours, records=5000)
        assert made.mean - fewer.mean == pytest.approx(rows[0] / 5000, abs=1e-5)
        assert np.isfinite(standardise(rows[:0], low=-1.0, high=1.0, target=GDP(1e6), neighbours=neighbours, records=5).scale).all()


def test_the_floor_holds_whatever_the_noise() -> None:
    for seed in range(20):
        made = standardise(np.zeros((3, 2)), low=-1.0, high=1.0, target=GDP(0.01), generator=np.random.default_rng(seed), least_scale=0.05)
        assert (made.scale >= 0.05 * (1.0 - 1e-12)).all()
        assert (made.scale <= 1.0).all()
        assert (np.abs(made.mean) <= 1.0).all()

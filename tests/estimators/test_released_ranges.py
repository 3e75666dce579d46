"""Released ranges and norms: what they look at, what lies beyond their ends, and what is said of it."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from hypothesis import given
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline

import lethe.estimators.inputs.norms
import lethe.estimators.inputs.ranges
from lethe.calculus.guarantees import GDP
from lethe.estimators import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
)
from lethe.estimators.inputs.norms import released_norm
from lethe.estimators.inputs.range_ends import RangeEndWarning
from lethe.estimators.inputs.ranges import private_ranges

# A search, and the exponential mechanism: .05 n mu / sqrt 2 of the ranges is 7 and 32, .25 n mu / 5 of the norms 10 and 45.
FEW, MANY = (1000, GDP(0.2)), (1000, GDP(0.9))
LARGEST = 1.7e308
quiet = pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.range_ends.RangeEndWarning")


def ranges(column: np.ndarray, share: GDP, seed: int | None = 0) -> Any:
    generator = None if seed is None else np.random.default_rng(seed)
    table = column if column.ndim == 2 else column[:, None]
    return private_ranges(table, tail=0.05, share=share, name="ranges", neighbours="replace_one", generator=generator)


def norm(sizes: np.ndarray, share: GDP, seed: int | None = 0) -> float:
    generator = None if seed is None else np.random.default_rng(seed)
    return released_norm(sizes, quantile=0.75, share=GDP(share.mu / 5.0), neighbours="replace_one", generator=generator)[0]


def looked_at(where: Any, values: np.ndarray, share: GDP) -> tuple[np.ndarray, float, float]:
    """What a release of ranges or of a norm passes on to the quantile: numbers, record by record, and the range."""
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeEndWarning)
        inner = where.private_quantile
        patch.setattr(where, "private_quantile", lambda values, **rest: seen.append((np.array(values), rest)) or inner(values, **rest))
        ranges(values, share) if where is lethe.estimators.inputs.ranges else norm(np.abs(values), share)
    points, rest = seen[0]
    return points, rest["low"], rest["high"]


numbers = st.floats(-LARGEST, LARGEST) | st.sampled_from([0.0, -1e12, 1e12, 1e6, -1e6, LARGEST, -LARGEST])


@pytest.mark.slow
@given(before=numbers, after=numbers, place=st.integers(0, 999), others=numbers)
@pytest.mark.parametrize(("count", "share"), [FEW, pytest.param(*MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", [lethe.estimators.inputs.ranges, lethe.estimators.inputs.norms], ids=lambda where: where.__name__)
def test_one_record_moves_one_number_within_a_public_range(
    where: Any, count: int, share: GDP, before: float, after: float, place: int, others: float
) -> None:
    one = np.full(count, others)
    two = one.copy()
    one[place], two[place] = before, after
    (first, *ends), (second, *others_ends) = (looked_at(where, values, share) for values in (one, two))
    assert ends == others_ends
    assert np.delete(first, place).tolist() == np.delete(second, place).tolist()
    assert ((first >= ends[0]) & (first <= ends[1])).all()
    assert len(set(np.delete(first, place).tolist())) == count - 1  # no ties, wherever the values lie


@quiet
@pytest.mark.parametrize(("count", "share", "far", "near"), [(*FEW, 1e6, 1e-4), (*MANY, 1e12, 1e-9)])
def test_a_release_sees_values_clipped_at_the_ends_and_no_more(count: int, share: GDP, far: float, near: float) -> None:
    rng = np.random.default_rng(1)
    column = rng.standard_normal(count) * 10.0 ** rng.uniform(-20, 300, count)
    clipped = np.clip(column, -far, far)
    assert (column != clipped).mean() > 0.8
    for seed in range(20):
        one, two = ranges(column, share, seed), ranges(clipped, share, seed)
        assert (one.low, one.high) == (two.low, two.high)
        assert norm(np.abs(column), share, seed) == norm(np.clip(np.abs(column), near, far), share, seed)
        assert "fixed in the code" in next(finding for finding in one.statement.findings if finding.name == "public range").detail
    assert norm(np.where(np.abs(column) > 1e200, math.inf, np.abs(column)), share) == norm(np.abs(column), share)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("count", "share", "far"), [(*FEW, 1e6), (*MANY, 1e12)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_is_beyond_an_end_is_released_at_it_with_a_warning(count: int, share: GDP, far: float, sign: float) -> None:
    column = sign * np.linspace(10.0 * far, 20.0 * far, count)
    for seed in range(20):
        with pytest.warns(RangeEndWarning, match="end of the public range, " + f"{sign * far:g}".replace("+", r"\+")):
            found = ranges(column, share, seed)
        # At the level where few values decide, a search may miss its last cell.
        assert np.abs(np.log(np.abs([found.low[0], found.high[0]]) / far)).min() < 0.002
        if far == 1e12:
            assert np.abs(found.low + found.high)[0] / 2.0 == pytest.approx(far, rel=0.002)
        with pytest.warns(RangeEndWarning, match="Larger ones"):
            assert norm(np.abs(column), share, seed) == pytest.approx(far, rel=0.05 if far == 1e6 else 0.002)


def test_tiny_norms_are_warned_of() -> None:
    for sizes in (np.zeros(1000), np.full(1000, 1e-12)):
        with pytest.warns(RangeEndWarning, match="1e-09. Smaller ones"):
            assert norm(sizes, MANY[1]) == pytest.approx(1e-9, rel=0.001)


def test_a_warning_names_the_columns_and_the_line_that_called_fit() -> None:
    X = np.random.default_rng(0).uniform(1.0, 2.0, (1500, 3)) * [1e9, 1.0, 1e9]
    with pytest.warns(RangeEndWarning, match=r"columns 0, 2, counted from 0: .* 1e\+06\. Values above") as said:
        PrivateStandardScaler(epsilon=2.0).fit(X)
    assert [one.filename for one in said] == [__file__]


@pytest.mark.slow
def test_nothing_is_said_of_usual_values_or_where_the_noise_decides() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        PrivateStandardScaler(epsilon=1.0).fit(rng.standard_normal((2000, 3)) * [1e3, 1.0, 1e-3])
        PrivateStandardScaler(epsilon=1.0).fit(np.full((60, 1), 1e9))


@pytest.mark.slow
def test_time_stamps_small_columns_and_large_targets_are_learned_from() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (8_000, 3))
    y, targets = (X[:, 0] > 0).astype(int), 1e8 * (5.0 + X @ [1.0, -1.0, 0.5])
    stamps = 1.6e9 + 1e7 * X
    model = LogisticRegression(epsilon=3.0, feature_norm=2.0, classes=[0, 1])
    assert make_pipeline(PrivateStandardScaler(epsilon=1.0), model).fit(stamps, y).score(stamps, y) > 0.95
    assert LogisticRegression(epsilon=3.0, classes=[0, 1]).fit(1e-7 * X, y).score(1e-7 * X, y) > 0.95
    assert LinearRegression(epsilon=3.0, feature_norm=1.8).fit(X, targets).score(X, targets) > 0.95


@pytest.mark.slow
def test_a_search_shows_what_the_chosen_try_said_and_nothing_of_the_others() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (8000, 2))
    search = PrivateSearch(
        LinearRegression(feature_norm=1.5, mechanism="adassp"),
        {"fit_intercept": [True, False]},
        epsilon=3.0,
        delta=1e-5,
        tries=4.0,
        score_bound=1e9,
        random_state=0,
    )
    counts = []
    for _ in range(8):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            search.fit(X, 1e9 * (3.0 + X[:, 0]))
        counts.append([one.category for one in said])
    assert counts == [[RangeEndWarning]] * 8


def with_one(values: np.ndarray, far: float) -> np.ndarray:
    changed = values.copy()
    changed[7] = far
    return changed


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_enormous_record_is_one_at_the_end(sign: float) -> None:
    """It made the release raise, and so showed."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 2))
    y = X @ [1.0, -1.0]
    for make, mechanism in ((LinearRegression, "adassp"), (HuberRegressor, "output_perturbation")):
        models = [make(epsilon=3.0, mechanism=mechanism, **SEEDED).fit(X, with_one(y, value)) for value in (sign * LARGEST, sign * 1e13)]
        assert models[0].target_range_ == models[1].target_range_
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-12)  # a slope is cut, not the target: it rounds otherwise
        norms = [models[0].fit(with_one(X, value), y).feature_norm_ for value in (sign * LARGEST, sign * 1e13)]
        assert norms[0] == norms[1]
    for make, parameters in ((PrivateStandardScaler, {}), (PrivateQuantileClipper, {}), (PrivateQuantileClipper, {"norm_quantile": 0.7})):
        transformer = make(**parameters, **SEEDED)
        far, end = (transformer.fit(with_one(X, value)).transform(X) for value in (sign * LARGEST, sign * 1e13))
        np.testing.assert_array_equal(far, end)

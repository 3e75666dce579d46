"""Released ranges and norms: what they look at, what lies beyond their ends, and what is said of it."""

import math
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from how_many import examples
from private_cases import build

from lethe.calculus.guarantees import GDP
from lethe.estimators import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PrivateQuantileClipper,
    PrivateStandardScaler,
)
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.ranges import RangeEndWarning, Ranges, UndetectedRangeWarning, private_norm, private_ranges, released_norm
from lethe.mechanisms.quantiles.located import LARGEST, SMALLEST

LARGE = 1.7e308
quiet = pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.ReleasedRangeWarning")


def ranges(column: np.ndarray, share: GDP, seed: int = 0) -> Ranges:
    table = column if column.ndim == 2 else column[:, None]
    settings: dict[str, Any] = {"tail": 0.05, "share": share, "name": "ranges", "give": "bounds", "neighbours": "replace_one"}
    return private_ranges(table, generator=np.random.default_rng(seed), **settings)


def norm(sizes: np.ndarray, share: GDP, seed: int = 0) -> float:
    generator = np.random.default_rng(seed)
    return released_norm(sizes, quantile=0.75, share=share, neighbours="replace_one", generator=generator)[0]


@quiet
@pytest.mark.parametrize("share", [GDP(0.1), GDP(0.9)])
def test_a_release_sees_no_more_of_values_beyond_the_ends_than_that_they_are(share: GDP) -> None:
    rng = np.random.default_rng(1)
    column = rng.standard_normal(1000) * 10.0 ** rng.uniform(-20, 300, 1000)
    clipped = np.where(np.abs(column) > LARGEST, np.sign(column) * LARGEST * 4.0, column)
    assert (column != clipped).mean() > 0.8
    for seed in range(20):
        one, two = ranges(column, share, seed), ranges(clipped, share, seed)
        assert (one.low, one.high) == (two.low, two.high)
        assert "fixed in the code" in next(finding for finding in one.statement.findings if finding.name == "public range").detail
        assert norm(np.abs(column), share, seed) == norm(np.abs(clipped), share, seed)
    assert norm(np.where(np.abs(column) > 1e200, math.inf, np.abs(column)), share) == norm(np.abs(column), share)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_is_beyond_an_end_is_released_at_it_with_a_warning(sign: float) -> None:
    column = sign * np.linspace(10.0 * LARGEST, 20.0 * LARGEST, 1000)
    for seed in range(20):
        with pytest.warns(RangeEndWarning, match=r"end of the public range, 1\.1e\+12\. Larger values"):
            found = ranges(column, GDP(0.9), seed)
        assert max(np.abs([found.low[0], found.high[0]])) == pytest.approx(LARGEST, rel=1e-3)
        with pytest.warns(RangeEndWarning, match="Larger ones"):
            assert norm(np.abs(column), GDP(0.2), seed) == pytest.approx(LARGEST, rel=1e-2)


def test_too_few_records_are_warned_of_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(UndetectedRangeWarning, match=r"60 records are too few .* Give public bounds, target_bound=\(low, high\); or more"):
        model = LinearRegression(epsilon=0.3, feature_norm=1.0, delta=1e-6, **SEEDED).fit(X := rng.uniform(-1.0, 1.0, (60, 2)), X[:, 0])
    assert np.abs(model.target_range_).max() <= 2.0 * SMALLEST  # predictions next to 0, whatever the noise
    with pytest.warns(UndetectedRangeWarning, match=r"columns 0, 1, 2, counted from 0: 60 records .* bounds=\(low, high\)") as shown:
        PrivateStandardScaler(epsilon=0.3, delta=1e-6, **SEEDED).fit(rng.standard_normal((60, 3)))
    assert [one.filename for one in shown] == [__file__]
    with pytest.warns(UndetectedRangeWarning, match=r"60 records .* feature_norm=R"):
        LogisticRegression(epsilon=0.3, delta=1e-6, classes=[0, 1], **SEEDED).fit(X, (X[:, 0] > 0.0).astype(int))
    with pytest.warns(UndetectedRangeWarning, match="may be several times too wide, or too narrow"):
        ranges(np.full(200, 3.0), GDP(0.12))


@quiet
@pytest.mark.sampled(2)
@pytest.mark.parametrize("records", [200, 442, 1000, 4000])
def test_a_range_of_targets_is_never_much_too_wide(records: int) -> None:
    for seed in range(examples(20)):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(-1.0, 1.0, (records, 3)), rng.uniform(0.0, 1.0, records)
        for epsilon in (0.3, 1.0, 3.0):
            model = LinearRegression(epsilon=epsilon, feature_norm=1.0, delta=1e-6, random_state=seed, seed_noise=True).fit(X, y)
            assert np.diff(model.target_range_)[0] <= 12.0


@quiet
def test_a_released_norm_is_never_much_too_large() -> None:
    """It was 382 where 2 is right."""
    for records in (200, 500, 1000):
        for seed in range(20):
            norms = np.linalg.norm(np.random.default_rng(seed).standard_normal((records, 4)), axis=1)
            for epsilon in (0.3, 1.0, 3.0):
                budget = PrivacyBudget(epsilon=epsilon, delta=1e-5, neighbours="replace_one")
                found, _ = private_norm(norms, budget, generator=np.random.default_rng(seed))
                assert found <= 8.0


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
        models = [
            build(make, epsilon=3.0, mechanism=mechanism, **SEEDED).fit(X, with_one(y, value)) for value in (sign * LARGE, sign * 1e13)
        ]
        assert models[0].target_range_ == models[1].target_range_
        np.testing.assert_allclose(
            models[0].coef_, models[1].coef_, rtol=1e-5
        )  # a slope is cut, not the target: the solver rounds otherwise
        norms = [models[0].fit(with_one(X, value), y).feature_norm_ for value in (sign * LARGE, sign * 1e13)]
        assert norms[0] == norms[1]
    for make, parameters in ((PrivateStandardScaler, {}), (PrivateQuantileClipper, {}), (PrivateQuantileClipper, {"norm_quantile": 0.7})):
        transformer = build(make, **parameters, **SEEDED)
        far, end = (transformer.fit(with_one(X, value)).transform(X) for value in (sign * LARGE, sign * 1e13))
        np.testing.assert_array_equal(far, end)

"""A total that is split among steps is never exceeded, whatever mechanism each of them comes to use."""

from __future__ import annotations

import math
from typing import Any

import pytest
from private_cases import build, two_blobs
from sklearn.pipeline import make_pipeline

from lethe.calculus.guarantees import GDP
from lethe.estimators import (
    LinearRegression,
    LogisticRegression,
    PrivateStandardScaler,
    privacy_of,
    split_budget,
)
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions

DELTA = 1e-5
X, Y = two_blobs(records=2000, columns=4)


def model(mechanism: str, **parameters: Any) -> Any:
    if mechanism == "adassp":
        return build(
            LinearRegression, options=EstimatorOptions(mechanism=mechanism), **{"feature_norm": 2.0, "target_bound": 2.0, **parameters}
        )
    return build(LogisticRegression, options=EstimatorOptions(mechanism=mechanism), classes=[0, 1], **{"feature_norm": 2.0, **parameters})


# For a fifth of epsilon = 1 a range ends at the end of the public one by chance, one fit in some ten thousand, and fit says so.
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.RangeEndWarning")
@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("total", "shares"), [(1.0, [0.2, 0.8]), (4.0, [0.5, 0.5])])
def test_the_total_is_met_with_every_mechanism(mechanism: str, total: float, shares: list[float]) -> None:
    """Split by squares of mu, objective perturbation came to 4.084 of 4."""
    steps = split_budget([PrivateStandardScaler(), model(mechanism)], total, DELTA, shares=shares)
    fitted: Any = make_pipeline(*steps).fit(X, Y)
    cost = privacy_of(fitted).epsilon(DELTA)
    assert 0.5 * total < cost <= total


def test_epsilons_and_deltas_add_up_where_steps_need_not_be_gaussian() -> None:
    """Two mechanisms that keep what they were told, and nothing better: one shows all with probability delta, else tells by epsilon."""
    one, other = split_budget([model("auto"), model("auto")], 1.0, 1e-3, shares=[0.4, 0.5])
    assert (one.epsilon, other.epsilon) == (pytest.approx(0.4, rel=1e-8), pytest.approx(0.5, rel=1e-8))
    assert (one.delta, other.delta) == (pytest.approx(4e-4, rel=1e-9), pytest.approx(5e-4, rel=1e-9))
    # Loss eps_1 + eps_2 unless one of them fails: exactly what such a pair loses, and more than a split by mu would have left room for.
    failing = 1.0 - (1.0 - one.delta) * (1.0 - other.delta)
    assert one.epsilon + other.epsilon <= 0.9
    assert failing <= 0.9e-3


@pytest.mark.slow
@pytest.mark.parametrize("part", [1.0, 0.25])
def test_gaussian_steps_have_the_square_root_of_their_share(part: float) -> None:
    scaler, linear = split_budget([PrivateStandardScaler(), model("cyclic")], 1.0, DELTA, shares=[0.4 * part, 0.6 * part])
    mus = [step.fit(X, Y).statement_.guarantee.mu for step in (scaler, linear)]
    assert GDP(math.hypot(*mus)).epsilon(DELTA) <= (1.0 if part == 1.0 else 0.52)
    assert mus[0] / mus[1] == pytest.approx(math.sqrt(0.4 / 0.6), rel=1.1e-5)  # training keeps 1e-5 of its noise in reserve
    assert scaler.delta == linear.delta == DELTA

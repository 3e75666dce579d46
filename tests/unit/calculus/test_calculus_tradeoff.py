"""Trade-off functions from profiles, against those that are known."""

import math

import numpy as np
import pytest
from scipy import stats

import lethe
from lethe.calculus.any_guarantee.composition import Composition, joined
from lethe.calculus.any_guarantee.stored import guarantee_from_dict
from lethe.calculus.guarantees import NotPrivate
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser

ALPHAS = (0.0, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.9, 1.0)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
def test_of_a_gaussian_it_is_just_below_the_exact_one(mu: float) -> None:
    for alpha in ALPHAS:
        exact = float(stats.norm.cdf(stats.norm.ppf(1.0 - alpha) - mu))
        found = lethe.guarantees.GDP(mu).tradeoff(alpha)
        assert found <= exact + 1e-15  # a test may be this good, never better than what is promised
        assert found >= exact * (1 - 1e-3) - 1e-6


def test_of_a_point_it_is_the_polygon_of_that_point() -> None:
    epsilon, delta = 0.7, 1e-3
    for alpha in ALPHAS:
        exact = max(0.0, 1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha))
        found = lethe.guarantees.ApproxDP(epsilon, delta).tradeoff(alpha)
        assert found <= exact
        assert found >= exact - 0.02  # the levels at which it is looked are not the point itself


@pytest.mark.slow
def test_what_is_not_private_hides_nothing_and_no_data_hides_all() -> None:
    for alpha in ALPHAS:
        assert NotPrivate().tradeoff(alpha) == 0.0
        assert lethe.guarantees.GDP(0.0).tradeoff(alpha) == pytest.approx(1.0 - alpha, abs=1e-14)
        with pytest.raises(lethe.InputError):
            lethe.guarantees.GDP(1.0).tradeoff(alpha + 1.5)


@pytest.mark.slow
def test_a_composition_is_kept_as_its_parts() -> None:
    parts = [(lethe.guarantees.GDP(0.3), 1), (lethe.guarantees.ApproxDP(0.5, 1e-8), 2)]
    both = joined(parts)
    assert isinstance(both, Composition)
    assert guarantee_from_dict(both.to_dict()) == both
    flat = joined([(lethe.guarantees.GDP(0.3), 2), (lethe.guarantees.ApproxDP(0.5, 1e-8), 4), (lethe.guarantees.ZCDP(0.1), 1)])
    assert joined([(both, 2), (lethe.guarantees.ZCDP(0.1), 1)]).epsilon(1e-6) == pytest.approx(flat.epsilon(1e-6), rel=1e-6)
    assert joined([(lethe.guarantees.GDP(0.3), 1), (lethe.guarantees.GDP(0.4), 1)]).kind == "gdp"
    for bad in (
        ((lethe.guarantees.GDP(1.0), 0),),
        ((lethe.guarantees.GDP(1.0), 1.5),),
        ((1.0, 1),),
        ((lethe.guarantees.GDP(1.0),),),
        ((lethe.guarantees.GDP(1.0), True),),
    ):
        with pytest.raises(lethe.InputError):
            Composition(bad)  # pyright: ignore[reportArgumentType]


def test_a_perturbed_minimiser_is_read_back() -> None:
    kept = PerturbedMinimiser(((0.1, ((0.5, 2), (0.2, 1))), (0.0, ((0.5, 1),))))
    assert guarantee_from_dict(kept.to_dict()) == kept
    for epsilon in np.linspace(0.0, 3.0, 7):
        assert guarantee_from_dict(kept.to_dict()).delta(epsilon) == kept.delta(epsilon)

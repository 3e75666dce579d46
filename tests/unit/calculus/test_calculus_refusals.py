"""What calculus refuses: a call, values that it may not be given, and what the error names."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from lethe.calculus import conversions as c
from lethe.calculus import rounding
from lethe.calculus.any_guarantee import guarantee_from_dict
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.composition import compose_gdp, compose_zcdp, overshoot
from lethe.calculus.crossing import smallest
from lethe.calculus.domains import require_count
from lethe.calculus.filters import BudgetFilter, Odometer, covering_mu, gaussian_cost, pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_gaussian
from lethe.calculus.sampled.renyi import poisson_renyi, renyi_values
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.errors import InputError

NAN, INF = math.nan, math.inf
NEGATIVE = (-1e-9, -INF, NAN, "1", None, [1.0])
DELTAS = (-1e-9, 1.0, 2.0, NAN, INF, "0.1", None, True)
LISTS = ([], [-1.0], [NAN], [[1.0]], "1", None)


sampled = partial(SampledGaussian, sampling_probability=0.1, noise=(1.0,), counts=(3,), relation="zero_out", design="poisson")
bins = partial(BallsInBinsGaussian, mus=(1.0,), counts=(3,), relation="zero_out")
windowed = partial(
    WindowedGaussian, sampling_probability=0.1, noise=(1.0,), counts=((3,),), shift_mus=(0.5,), relation="zero_out", design="poisson"
)


def fields(make: Callable[..., object], **bad: tuple[object, ...]) -> list[tuple[Callable[..., object], tuple[object, ...], str]]:
    return [(lambda value, name=name: make(**{name: value}), values, "") for name, values in bad.items()]


BOTH = {"design": "without_replacement", "relation": "add_or_remove"}
TABLE: list[tuple[Callable[..., object], tuple[object, ...], str]] = [
    *(
        (lambda d, f=f: f(1.0, d), DELTAS, "delta")
        for f in (c.gdp_epsilon, c.gdp_mu, c.zcdp_epsilon, c.zcdp_epsilon_simple, c.zcdp_rho_simple)
    ),
    (lambda d: c.rdp_epsilon([2.0], [1.0], d), DELTAS, "delta"),
    *(
        (lambda x, f=f: f(x, 0.1), NEGATIVE, "it needs")
        for f in (c.gdp_delta, c.gdp_epsilon, c.gdp_mu, c.zcdp_epsilon, c.zcdp_epsilon_simple)
    ),
    *((lambda x, f=f: f(x, 0.1), NEGATIVE, "it needs") for f in (c.zcdp_rho_simple, c.zcdp_delta)),
    *((lambda x, f=f: f(1.0, x), NEGATIVE, "it needs") for f in (c.gdp_delta, c.zcdp_delta)),
    (lambda x: c.rdp_delta([2.0], [1.0], x), NEGATIVE, "it needs"),
    *((lambda o, f=f: f(o, [1.0], 0.5), ([], [1.0], [INF], [[2.0]], 2.0, [2.0, 3.0]), "") for f in (c.rdp_epsilon, c.rdp_delta)),
    *((lambda v, f=f: f([2.0], v, 0.5), ([-1.0], [NAN], [[1.0]], 1.0), "") for f in (c.rdp_epsilon, c.rdp_delta)),
    *((f, LISTS, "") for f in (compose_gdp, compose_zcdp)),
    *((f, (-1.0, NAN, "1", None, (1.0,)), "") for f in (GDP, ZCDP, lambda x: ApproxDP(x, 0.1), lambda x: ApproxDP(1.0, x))),
    (lambda x: ApproxDP(x, 0.1), (INF,), ""),
    (lambda x: RDPCurve((2.0,), x), (-1.0, (NAN,), "1", None), ""),
    (Tightest, ((), (1.0,), (None,)), "parts"),
    (lambda x: WithSlack(GDP(1.0), x), (-0.1, 1.1, NAN), "slack"),
    (lambda x: WithSlack(x, 0.1), (None, 1.0), "guarantee"),
    (
        lambda x: GDPMixture(*x),
        (((), ()), ((1.0,), (1.1,)), ((1.0,), (-0.1,)), ((-1.0,), (1.0,)), ((1.0, 2.0), (1.0,)), ((NAN,), (1.0,))),
        "",
    ),
    (
        guarantee_from_dict,
        (None, {}, {"kind": "unheard"}, {"kind": "gdp"}, {"kind": "gdp", "mu": 1.0, "nu": 2.0}, {"kind": "gdp", "mu": "one"}),
        "",
    ),
    *fields(
        sampled,
        sampling_probability=(-0.1, 1.1, NAN),
        noise=((), (0.0,), (INF,), (1.0, 2.0)),
        counts=((0,), (1.5,)),
        relation=("neighbours",),
        design=("shuffled",),
        levels_before_rounding=(-1,),
        gaussian_mu=(-0.1, INF, NAN),
    ),
    (lambda x: sampled(**x), (BOTH, {"noise": (1.0, 1.0), "counts": (1, 1)}), ""),
    *(
        (lambda x, q=q: sampled_gaussian(q, x, "zero_out", "poisson"), ([], [-1.0], [NAN], [INF], [[1.0]], 1.0, None), "")
        for q in (0.0, 0.5, 1.0)
    ),
    (lambda x: sampled_gaussian(0.5, [x], "add_or_remove", "without_replacement"), (1.0,), "Poisson"),
    *fields(
        windowed,
        counts=(((1, 2),), ((0,),)),
        shift_mus=((1.0, 2.0), (-1.0,)),
        noise=((0.0,),),
        sampling_probability=(0.0,),
        design=("cyclic",),
    ),
    (lambda x: windowed(**x), (BOTH,), ""),
    *fields(bins, mus=((), (-1.0,), (INF,), (NAN,), (1.0, 2.0)), counts=((0,), (1.5,)), relation=("swap",)),
    (lambda x: bins(**x), ({"mus": (1.0, 1.0), "counts": (1, 1)},), ""),
    (lambda q: renyi_values(q, [1.0], "zero_out", "poisson"), (-0.1, NAN), ""),
    (lambda z: renyi_values(0.1, z, "zero_out", "poisson"), ([], [-1.0], [INF]), ""),
    (lambda z: renyi_values(0.1, z, "add_or_remove", "without_replacement"), ([1.0],), "Poisson"),
    (lambda q: poisson_renyi(q, [1.0], [2.0]), (-0.1, NAN), ""),
    (lambda orders: poisson_renyi(0.1, [1.0], orders), ([1.0], [], [INF], [1e5]), ""),
    (lambda x: smallest(lambda y: 1 / y, x, start=1.0), (0.0, -1.0, NAN, INF, None), "target"),
    (lambda x: smallest(lambda y: 1 / y, 1.0, start=x), (0.0, -1.0, NAN, INF, None), "start"),
    (lambda x: smallest(lambda y: 1 / y, 1.0, start=1.0, tolerance=x), (0.0, -1.0, NAN, INF, None), "tolerance"),
    (gaussian_cost, (-1.0, NAN, "1", True, None, [1.0]), "noise_ratio"),
    *((call, (-1.0, NAN, "1", True, None, [1.0]), "rho") for call in (BudgetFilter(1.0).allows, BudgetFilter(1.0).spend)),
    (BudgetFilter, (0.0, -1.0, NAN, INF, 1e301, True, "1"), "rho"),
    (lambda slot: BudgetFilter(1.0, slots=3).spend(0.1, slot), (-1, 3, 1.0, True, "0"), "slot"),
    (lambda slots: BudgetFilter(1.0, slots=slots), (0, True, 1.5), "slots"),
    (lambda x: Odometer(levels=x, weights=(1.0,)), ((), (0.0,), (NAN,), (INF,), "1"), ""),
    (lambda x: Odometer(levels=(1.0, 2.0), weights=x), ((0.6, 0.5), (1.0,), (0.0, 0.5)), ""),
    (lambda x: Odometer.up_to(1.0).epsilon(x, 0.1), (-1.0, NAN, True), "spent"),
    (lambda x: Odometer.up_to(1.0).epsilon(1.0, x), (1.0, -0.1, NAN), "delta"),
    (lambda x: Odometer.up_to(x, levels=3), (0.0, INF), "rho"),
    (lambda x: Odometer.up_to(1.0, levels=x), (0, True, 2.0), "levels"),
    (lambda x: covering_mu(GDP(1.0), x), (-1e-9, 1.1, NAN), "slack"),
    (pure_mu, (-1e-9, NAN), "epsilon"),
    (
        lambda x: overshoot(GDP(1.0), x),
        (GDP(0.0), GDP(INF), ZCDP(0.0), ApproxDP(0.0, 1e-5), RDPCurve((2.0,), (INF,)), NotPrivate(), 1.0),
        "target",
    ),
    (
        lambda x: require_count("n", x),
        (0, -1, 5.0, True, np.True_, "5", None, 10**12 + 1, np.array([5])),
        r"n = .*a whole number from 1 to 10\^12",
    ),
    (lambda x: require_count("seed", x, low=0, high=9), (10, -1), "from 0 to 9"),
    (lambda x: rounding.count_above(1.0, x), (-1, rounding.MOST_COUNT + 1), "largest"),
]


@pytest.mark.parametrize("row", range(len(TABLE)))
def test_bad_values_are_refused_by_name(row: int) -> None:
    call, values, name = TABLE[row]
    for value in values:
        with pytest.raises(InputError, match=name or None) as caught:
            call(value)
        assert "need" in str(caught.value)

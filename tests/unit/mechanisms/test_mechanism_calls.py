"""What mechanisms refuse: the call, the argument that the error names, and that it says what to do. And what they say under a seed.

Every mechanism and solver that takes a generator says so, and claims nothing, once it is given one.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lethe.heavy_tailed
import lethe.mechanisms
from lethe.accounting.heavy_tailed import certify_solution
from lethe.calculus.guarantees import GDP, ApproxDP, NotPrivate
from lethe.certificates.findings import FRESH_NOISE
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.heavy_tailed import Moments, Problem
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.localisation.descent import localised, regularised_descent, strongly_convex
from lethe.heavy_tailed.localisation.plans import localised_practical
from lethe.heavy_tailed.localisation.population import population_localised
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.private_moments import estimated_moments, private_moment
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.solution import Solution
from lethe.mechanisms.adassp import adassp
from lethe.mechanisms.base import gaussian_guarantee, joint, require_swap, target_mu
from lethe.mechanisms.bounded_range import range_delta, range_guarantee, range_mu, range_of_mu, range_of_target, range_renyi
from lethe.mechanisms.bounded_sums import noisy_sums, with_noise
from lethe.mechanisms.minimisers.objective_perturbation import minimiser_profile, objective_noise_std, objective_perturbation
from lethe.mechanisms.minimisers.output_perturbation import output_perturbation
from lethe.mechanisms.moments import channel_moments, second_moment
from lethe.mechanisms.quantiles.located_quantiles import ColumnsInMemory, located_quantiles, noisy_counts
from lethe.mechanisms.quantiles.quantile import private_quantile
from lethe.mechanisms.ranking import rank_counts
from lethe.mechanisms.repetitions import PoissonRepetitions, TruncatedNegativeBinomial
from lethe.mechanisms.selection import choose
from lethe.mechanisms.standardise import standardise
from lethe.mechanisms.tables import projected_rows
from lethe.run.losses import Logistic

LOSS = Logistic(feature_norm=1.0)
TARGET, FOUR = ApproxDP(1.0, 1e-5), np.arange(4.0)
PAIR: dict[str, Any] = {"features": [[1.0], [0.5]], "targets": [0, 1]}
# Of each mechanism a call that it takes.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "adassp": (adassp, PAIR | {"feature_norm": 1.0, "target_bound": 1.0, "target": TARGET}),
    "channel_moments": (channel_moments, {"rows": np.zeros((5, 6)), "channels": 2, "norm": 1.0, "target": GDP(1.0)}),
    "located_quantiles": (
        located_quantiles,
        {"columns": ColumnsInMemory(np.ones((9, 2))), "tails": (0.1, 0.1), "target": GDP(1.0), "neighbours": "replace_one"},
    ),
    "noisy_counts": (
        noisy_counts,
        {"counts": np.ones((3, 4)), "noise_std": 1.0, "neighbours": "replace_one", "records": 4, "name": "counts"},
    ),
    "with_noise": (with_noise, {"sums": np.ones(2), "records": 3, "noise_std": 1.0, "neighbours": "zero_out", "name": "sums"}),
    "noisy_sums": (noisy_sums, {"values": np.ones((3, 2)), "noise_std": 1.0, "neighbours": "zero_out", "name": "sums"}),
    "rank_counts": (rank_counts, {"scores": FOUR, "positive": FOUR > 1.0, "noise_std": 1.0, "neighbours": "replace_one"}),
    "second_moment": (second_moment, {"rows": np.zeros((3, 2)), "norm": 1.0, "target": GDP(1.0)}),
    "standardise": (standardise, {"rows": np.zeros((3, 2)), "low": -1.0, "high": 1.0, "target": GDP(1.0)}),
    "private_quantile": (private_quantile, {"values": [0.1, 0.2, 0.3], "quantile": 0.5, "low": 0.0, "high": 1.0, "target": GDP(1.0)}),
    "output_perturbation": (output_perturbation, PAIR | {"loss": LOSS, "regularisation": 1.0, "target": TARGET}),
    "objective_perturbation": (objective_perturbation, PAIR | {"loss": LOSS, "regularisation": 4.0, "target": TARGET}),
    "objective_noise_std": (objective_noise_std, {"loss": LOSS, "records": 1000, "weights": 5, "regularisation": 0.05, "target": TARGET}),
    "minimiser_profile": (minimiser_profile, {"loss": LOSS, "ridge": 1.0, "noise_std": 1.0, "solver_mu": 0.0}),
    "choose": (
        choose,
        {
            "candidates": "abc",
            "train": str,
            "score": len,
            "repetitions": TruncatedNegativeBinomial(eta=1.0, gamma=0.5),
            "train_guarantee": GDP(0.3),
            "score_guarantee": "public",
        },
    ),
}
ALL: dict[str, tuple[Any, ...]] = {
    "neighbours": ("add_or_remove", "some"),
    "target": (1.0, None, NotPrivate(), GDP(0.0), ApproxDP(1.0, 0.0)),
    "generator": (1,),
    "records": (0, 7.5, True),
}
TABLES = (np.zeros(2), np.zeros((0, 2)), np.zeros((2, 0)), [[math.nan, 0.0]], [[1.0, math.inf]], [["a", "b"]], [[1j, 1j]], [[True, False]])
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "adassp": {
        "feature_norm": (-1.0, math.inf),
        "target_bound": (0.0,),
        "least_ridge": (-1.0,),
        "features": ([[1.0], ["a"]], [1.0, 2.0]),
        "targets": ([1.0], [1.0, math.inf]),
    },
    "channel_moments": {
        "channels": (0, 4, 2.0, True),
        "norm": (0.0, math.nan, 1e-160, 1e160),
        "mean_weight": (0.0, 2.1, math.nan),
        "rows": TABLES,
    },
    "second_moment": {"records": (2, 7), "norm": (0.0, math.nan, math.inf, True), "rows": TABLES},
    "standardise": {
        "low": (1.0, math.nan, [0.0], -1e308 * 2),
        "high": (math.inf, "1", True, -1.0),
        "least_scale": (0.0, 1.5),
        "rows": TABLES,
    },
    "private_quantile": {
        "quantile": (0.0, 1.0, math.nan, True),
        "low": (1.0, math.nan),
        "high": (math.inf,),
        "values": ([math.nan], [math.inf], ["a"], [[1.0]], [True], [[1.0], [1.0, 2.0]], []),
    },
    "output_perturbation": {
        "loss": (None, 3),
        "regularisation": (0.0, math.nan),
        "features": ([[math.nan], [1.0]],),
        "targets": ([0, 2], [0]),
    },
    "objective_perturbation": {"noise_std": (1.0,), "loss": (None,), "regularisation": (0.0,), "features": ([[math.nan], [1.0]],)},
    "objective_noise_std": {
        "regularisation": (math.inf,),
        "records": (1000.0,),
        "weights": (True,),
        "loss": (None,),
        "target": (GDP(1.0),),
    },
    "minimiser_profile": {"ridge": (math.nan,), "noise_std": (0.0, True), "solver_mu": (-1.0,)},
    "choose": {
        "candidates": ((),),
        "repetitions": (5,),
        "train_guarantee": (0.3, "public"),
        "score_guarantee": ("private", None),
        "delta": (1.0, math.nan),
        "score": (lambda _: "high",),
    },
}
TAKEN = (("private_quantile", ApproxDP(1.0, 0.0)), ("choose", "add_or_remove"))


def cases(name: str) -> Iterator[tuple[str, Any]]:
    call, _ = CALLS[name]
    takes = inspect.signature(call).parameters
    for field, values in [*OWN[name].items(), *((field, values) for field, values in ALL.items() if field in takes)]:
        yield from ((field, value) for value in values if (name, value) not in TAKEN)


@pytest.mark.parametrize("name", OWN)
def test_what_is_refused_names_the_argument_and_what_to_do(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for field, value in cases(name):
        with pytest.raises(InputError) as refused:
            call(**{**good, field: value})
        text = str(refused.value)
        assert field in text or refused.value.source in ("the data", "run.loss") or "range" in text, (field, value, text)


REFUSED: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "gamma": (lambda value: TruncatedNegativeBinomial(eta=1.0, gamma=value), (0.0, 1.0, -0.1, math.nan, "x", True, 1e-7)),
    "eta": (lambda value: TruncatedNegativeBinomial(eta=value, gamma=0.5), (-1.0, math.nan, math.inf, True)),
    "rate": (lambda value: PoissonRepetitions(rate=value), (0.0, -1.0, math.nan, math.inf, True, 501.0)),
    "mean": (TruncatedNegativeBinomial.of_mean, (1.0, 0.5, math.nan, 2e6, "x")),
    "delta": (TruncatedNegativeBinomial(eta=0.0, gamma=0.5).hit_probability, (-0.1, 1.1, math.nan)),
    "sensitivity": (lambda value: gaussian_guarantee(value, 1.0), (math.nan, -1.0, True)),
    "noise_std": (lambda value: gaussian_guarantee(1.0, value), (math.inf,)),
    "target": (target_mu, (ApproxDP(1.0, 0.0), ApproxDP(0.0, 1e-5), GDP(0.0), NotPrivate(), 1.0)),
    "neighbours": (require_swap, ("add_or_remove",)),
    "mu": (range_of_mu, (-1.0, math.nan)),
    "epsilon": (range_mu, (-1.0, math.nan, math.inf, "1", True)),
    "epsilon of a guarantee": (range_guarantee, (-1.0, math.inf)),
    "epsilon of a delta": (lambda value: range_delta(value, 0.1), (-1.0, math.inf)),
    "epsilon of orders": (lambda value: range_renyi(value, [2.0]), (-1.0, math.inf)),
    "target of a range": (range_of_target, (1.0, None)),
    "feature_norm": (lambda value: projected_rows([[1.0]], feature_norm=value), (0.0,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_out_of_their_range_are_refused_by_name(name: str) -> None:
    call, values = REFUSED[name]
    for value in values:
        with pytest.raises(InputError, match=name.split()[0]):
            call(value)


# --- generators ---

RELEASES = {name for name, (call, _) in CALLS.items() if "generator" in inspect.signature(call).parameters}
ROWS = np.random.default_rng(0).uniform(-1.0, 1.0, (120, 3))
PROBLEM = Problem(
    gradient=lambda w, rows: w - np.asarray(rows, dtype=np.float64),
    dimension=3,
    smoothness=1.0,
    strong_convexity=1.0,
    pl_constant=1.0,
    domain=lethe.heavy_tailed.BallDomain(radius=2.0),
    moments=Moments(order=4.0, bound=1.0, kind="uniform"),
)
ORACLE = ClippedMean(clip_norm=1.0, rho=0.5)
PHASES = localised_practical(PROBLEM, 120, 0.5, most_steps=3)
SOLVERS: dict[str, Callable[..., Solution]] = {
    "accelerated": lambda **g: accelerated(PROBLEM, ROWS, oracle=ORACLE, steps=3, step=4.0, **g),
    "localised": lambda **g: localised(PROBLEM, ROWS, schedule=PHASES, rho=0.5, **g),
    "multi_pass": lambda **g: lethe.heavy_tailed.multi_pass(PROBLEM, ROWS, oracle=ORACLE, passes=2, batch_size=40, **g),
    "one_pass": lambda **g: one_pass(PROBLEM, ROWS, oracle=ORACLE, steps=3, **g),
    "population_localised": lambda **g: population_localised(PROBLEM, ROWS, schedule=PHASES, oracle=ORACLE, parts=1, **g),
    "proximal": lambda **g: proximal(PROBLEM, ROWS, oracle=ORACLE, steps=3, **g),
    "regularised_descent": lambda **g: regularised_descent(PROBLEM, ROWS, PHASES[0], 0.5, **g),
    "sampled_localised": lambda **g: sampled_localised(PROBLEM, ROWS, schedule=PHASES, epsilon=1.0, delta=1e-4, **g),
    "strongly_convex": lambda **g: strongly_convex(PROBLEM, ROWS, rho=0.5, most_steps=3, **g),
}
MOMENTS: dict[str, Callable[..., Any]] = {
    "private_moment": lambda **g: private_moment(np.abs(ROWS[:, 0]), order=2.0, rho=4.0, failure=0.3, **g),
    "estimated_moments": lambda **g: estimated_moments(PROBLEM, ROWS, order=2.0, rho=4.0, share=0.5, failure=0.3, **g),
}
NO_RELEASE = {"noise_generator", "median_cell"}
"""They draw for a caller that states what it costs; messages of users' own, `local_messages` and the like, state nothing either."""


def test_none_is_forgotten() -> None:
    found: set[str] = set()
    for package in (lethe.mechanisms, lethe.heavy_tailed):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for name, thing in vars(importlib.import_module(module.name)).items():
                if inspect.isfunction(thing) and thing.__module__ == module.name and not name.startswith("_"):
                    parameter = inspect.signature(thing).parameters.get("generator")
                    found |= {name} if parameter is not None and parameter.default is None else set()
    assert found - NO_RELEASE == RELEASES | SOLVERS.keys() | MOMENTS.keys()


def statement_of(release: Any) -> Statement:
    return release[1] if isinstance(release, tuple) else release.statement


@pytest.mark.parametrize("name", sorted(RELEASES))
def test_a_given_generator_voids_the_statement(name: str) -> None:
    call, good = CALLS[name]
    fresh, seeded = (statement_of(call(**good, **seed)) for seed in ({}, {"generator": np.random.default_rng(0)}))
    assert not fresh.seeded
    assert fresh.epsilon(1e-5) < math.inf
    assert (seeded.seeded, seeded.guarantee) == (True, NotPrivate())
    assert seeded.epsilon(1e-5) == math.inf
    assert seeded.delta(3.0) == 1.0
    assert seeded.planned == fresh.planned == fresh.guarantee
    assert [finding.name for finding in seeded.findings if finding.status == "fails"] == [FRESH_NOISE]
    assert seeded.to_dict()["guarantee"] == {"kind": "not_private"}
    assert "seeded" not in fresh.to_dict()
    together = joint([fresh, seeded])
    assert together.epsilon(1e-5) == math.inf > together.planned.epsilon(1e-5)
    assert sum(finding.name == FRESH_NOISE for finding in together.findings) == 1


@pytest.mark.parametrize("name", SOLVERS)
def test_a_given_generator_voids_the_solution(name: str) -> None:
    fresh, seeded = SOLVERS[name](), SOLVERS[name](generator=np.random.default_rng(0))
    assert not fresh.seeded
    assert not any(phase.seeded for phase in fresh.phases)
    assert fresh.fresh is fresh
    assert seeded.seeded
    assert seeded.guarantee == NotPrivate()
    assert all(phase.guarantee == NotPrivate() and phase.rho == math.inf for phase in seeded.phases)
    assert seeded.fresh.guarantee == seeded.with_fresh_noise == fresh.guarantee != NotPrivate()
    assert [phase.guarantee for phase in seeded.fresh.phases] == [phase.guarantee for phase in fresh.phases]
    certificate = certify_solution(seeded, 1e-4)
    assert certificate.epsilon == math.inf
    assert "NOT PRIVATE: no release" in certificate.explain()
    assert certificate.with_fresh_noise == certify_solution(fresh, 1e-4)
    if seeded.run is not None:
        assert seeded.run.seeded
        assert lethe.certify(seeded.run, 1e-4).epsilon == math.inf
        assert certificate.certificate is not None
        assert certificate.certificate.epsilon == math.inf


@pytest.mark.parametrize("name", MOMENTS)
def test_a_seeded_estimate_voids_what_is_joined_to_it(name: str) -> None:
    fresh, seeded = MOMENTS[name](), MOMENTS[name](generator=np.random.default_rng(0))
    solution = SOLVERS["multi_pass"]()
    assert fresh.joined(solution).guarantee.epsilon(1e-5) < math.inf
    assert seeded.phase.guarantee == seeded.joined(solution).guarantee == NotPrivate()
    assert seeded.joined(solution).seeded
    assert seeded.joined(solution).fresh.guarantee == fresh.joined(solution).guarantee
    known = SOLVERS["multi_pass"](generator=np.random.default_rng(0))
    assert fresh.joined(known).guarantee == NotPrivate()
    assert fresh.joined(known).fresh.guarantee == fresh.joined(solution).guarantee


def test_what_fresh_noise_would_cost_is_said_of_seeded_releases_only() -> None:
    with pytest.raises(InputError, match="with_fresh_noise"):
        Statement(name="x", guarantee=GDP(1.0), neighbours="replace_one", findings=(), citations=(), with_fresh_noise=GDP(0.1))

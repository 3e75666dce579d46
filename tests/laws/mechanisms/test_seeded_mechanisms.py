"""Every mechanism, preprocessing step and solver that takes a generator says so, and claims nothing, once it is given one."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
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
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.private_moments import estimated_moments, private_moment
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.solution import Solution
from lethe.mechanisms import adassp, moments, selection, standardise
from lethe.mechanisms.base import joint
from lethe.mechanisms.minimisers import objective_perturbation, output_perturbation
from lethe.mechanisms.quantiles import located, quantile
from lethe.mechanisms.quantiles.located import ColumnsInMemory
from lethe.mechanisms.repetitions import TruncatedNegativeBinomial
from lethe.run.losses import Logistic

ROWS = np.random.default_rng(0).uniform(-1.0, 1.0, (120, 3))
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
TARGET = ApproxDP(1.0, 1e-5)
LINEAR: dict[str, Any] = {"loss": Logistic(feature_norm=1.0), "regularisation": 0.1}

RELEASES: dict[str, Callable[..., Statement]] = {
    "adassp": lambda **g: adassp.adassp(ROWS, ROWS[:, 0], feature_norm=1.0, target_bound=1.0, target=TARGET, **g).statement,
    "objective_perturbation": lambda **g: (
        objective_perturbation.objective_perturbation(ROWS, LABELS, target=TARGET, **LINEAR, **g).statement
    ),
    "output_perturbation": lambda **g: output_perturbation.output_perturbation(ROWS, LABELS, target=TARGET, **LINEAR, **g).statement,
    "private_quantile": lambda **g: quantile.private_quantile(ROWS[:, 0], quantile=0.5, low=-2.0, high=2.0, target=TARGET, **g).statement,
    "located_quantiles": lambda **g: (
        located.located_quantiles(ColumnsInMemory(ROWS), tails=(0.1, 0.1), target=GDP(1.0), neighbours="replace_one", **g).statement
    ),
    "noisy_counts": lambda **g: located.noisy_counts(
        np.ones((3, 4)), noise_std=1.0, neighbours="replace_one", records=4, name="counts", **g
    )[1],
    "second_moment": lambda **g: moments.second_moment(ROWS, norm=1.0, target=TARGET, **g).statement,
    "standardise": lambda **g: standardise.standardise(ROWS, low=-1.0, high=1.0, target=TARGET, **g).statement,
    "channel_moments": lambda **g: moments.channel_moments(ROWS, channels=3, norm=1.0, target=TARGET, **g).statement,
    "choose": lambda **g: (
        selection.choose(
            "ab",
            str,
            len,
            repetitions=TruncatedNegativeBinomial(eta=1.0, gamma=0.5),
            train_guarantee=GDP(0.1),
            score_guarantee="public",
            **g,
        ).statement
    ),
}
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
    assert found - NO_RELEASE == RELEASES.keys() | SOLVERS.keys() | MOMENTS.keys()


@pytest.mark.parametrize("name", RELEASES)
def test_a_given_generator_voids_the_statement(name: str) -> None:
    fresh, seeded = RELEASES[name](), RELEASES[name](generator=np.random.default_rng(0))
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

"""Which solver, with which settings: all from public or released constants, none from the records."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lethe.calculus.domains import outside, require_count
from lethe.errors import InputError
from lethe.estimators.heavy_tailed.linear import ClippedLinearMean, LinearScoreProblem
from lethe.heavy_tailed import Problem, multi_pass, practical_oracle
from lethe.heavy_tailed.accelerated import accelerated, accelerated_optimised, accelerated_practical, accelerated_theory
from lethe.heavy_tailed.localisation.descent import localised
from lethe.heavy_tailed.localisation.plans import localised_practical, localised_theory
from lethe.heavy_tailed.localisation.rounds import strongly_convex
from lethe.heavy_tailed.one_pass import one_pass, one_pass_optimised, one_pass_practical, one_pass_theory
from lethe.heavy_tailed.problem import Records, count_records
from lethe.heavy_tailed.proximal import proximal, proximal_optimised, proximal_practical, proximal_theory
from lethe.heavy_tailed.settings import Plan
from lethe.heavy_tailed.solution import Solution

SOLVERS = ("multi_pass", "one_pass", "accelerated", "proximal", "localised", "strongly_convex")
PARAMETERS = ("practical", "theory", "optimised")
UNIFORM = ("localised", "strongly_convex")
"""Those that need moments of the largest gradient in the domain, of an order of at least 4."""
_PLANNED = {
    "one_pass": {"practical": one_pass_practical, "theory": one_pass_theory, "optimised": one_pass_optimised},
    "accelerated": {"practical": accelerated_practical, "theory": accelerated_theory, "optimised": accelerated_optimised},
    "proximal": {"practical": proximal_practical, "theory": proximal_theory, "optimised": proximal_optimised},
}
_KINDS = {"multi_pass": ("practical",), "localised": ("practical", "theory"), "strongly_convex": ("practical", "theory")}
_MOST_STEPS = 200  # of a phase, where settings are practical


def chosen_solver(solver: Any, parameters: Any, *, strongly: bool) -> str:
    """The solver's name; "auto": multi_pass for practical settings, else the one with the better rate of those with a bound."""
    if parameters not in PARAMETERS:
        raise outside("parameters", parameters, "one of " + ", ".join(PARAMETERS))
    if isinstance(solver, str) and solver == "auto":
        return "multi_pass" if parameters == "practical" else "one_pass" if strongly else "accelerated"
    if solver not in SOLVERS:
        raise outside("mechanism", solver, "auto or one of " + ", ".join(SOLVERS))
    kinds = _KINDS.get(solver, PARAMETERS)
    if parameters not in kinds:
        raise InputError(
            f'mechanism = "{solver}" with parameters = "{parameters}"; it has {" and ".join(kinds)} ones only.',
            source="the options mechanism and parameters",
            remedy='take another mechanism, or "auto"',
        )
    return solver


def solve(
    name: str,
    parameters: str,
    problem: LinearScoreProblem,
    records: Records,
    rho: float,
    *,
    passes: Any = 30,
    generator: np.random.Generator | None = None,
) -> tuple[Solution, Plan | None]:
    r"""Run a solver on all records at $\rho$: its solution, and the settings with their risk bound; None for solvers without one."""
    if name == "multi_pass":
        oracle = ClippedLinearMean(clip_norm=practical_oracle(problem, rho).clip_norm, rho=rho)
        count = require_count("passes", passes)
        return multi_pass(problem, records, oracle=oracle, passes=count, generator=generator), None
    if name in UNIFORM:
        rows = _with_table(problem)
        if name == "strongly_convex":
            limit = _MOST_STEPS if parameters == "practical" else None
            return strongly_convex(rows, records, rho=rho, most_steps=limit, generator=generator), None
        schedule = (localised_practical if parameters == "practical" else localised_theory)(rows, count_records(records), rho)
        return localised(rows, records, schedule=schedule, rho=rho, generator=generator), None
    plan = planned(name, parameters, problem, count_records(records), rho)
    oracle = ClippedLinearMean(clip_norm=plan.clip_norm, rho=rho)
    if name == "accelerated":
        assert plan.step is not None
        found = accelerated(problem, records, oracle=oracle, steps=plan.steps, step=plan.step, generator=generator)
    else:
        found = (one_pass if name == "one_pass" else proximal)(problem, records, oracle=oracle, steps=plan.steps, generator=generator)
    return found, plan


@lru_cache(maxsize=4096)
def planned(name: str, parameters: str, problem: Problem, count: int, rho: float) -> Plan:
    r"""The settings of a one-pass solver that starts in the middle of the domain.

    For `proximal` the gap there is taken as $r_2$ times the radius: a convex F has $F(0) - F(w^*) \le \|\nabla F(0)\|\,\|w^*\|$.
    """
    make: Any = _PLANNED[name][parameters]
    if name == "accelerated":
        return make(problem, count, rho)
    radius = problem.distance(problem.domain.diameter / 2.0)
    if name == "one_pass":
        return make(problem, count, rho, distance=radius)
    return make(problem, count, rho, gap=problem.known_moments().raw_second(problem.dimension) * radius)


def _with_table(problem: LinearScoreProblem) -> Problem:
    return Problem(
        gradient=problem.gradient,
        dimension=problem.dimension,
        domain=problem.domain,
        smoothness=problem.smoothness,
        strong_convexity=problem.strong_convexity,
        moments=problem.moments,
    )

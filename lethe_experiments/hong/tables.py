r"""Hong, Wang & Zhou 2022, Tables 1 and 2: orders of the excess risk as printed, and what is proved of the paper's own methods.

M = G = 1 and $\mu = 1/\kappa$; records, dimension and budget are those of the paper's experiments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lethe.calculus.conversions import zcdp_rho_simple
from lethe.calculus.crossing import least_whole
from lethe_experiments.base import Cell, Progress, Reproduction
from lethe_experiments.rates.comparators import Row, Setting
from lethe_experiments.rates.tables import TABLE_1, TABLE_2
from lethe_experiments.risk.best_steps import best_steps_dynamic, best_steps_uniform
from lethe_experiments.risk.gradient_descent import noise_to_gap
from lethe_experiments.risk.momentum_risk import erub_momentum_dyn, erub_momentum_uni, largest_relative_step
from lethe_experiments.risk.true_risk import ter_expectation, ter_high_probability, uniform_stability

KAPPA, BETA, GAP = 10.0, 0.5, 1.0
EPSILON, DELTA = 4.0, 1e-8
SETTING = Setting(
    dimension=60,
    records=1000,
    budget=2.0 * zcdp_rho_simple(EPSILON, DELTA),
    epsilon=EPSILON,
    delta=DELTA,
    strong_convexity=1.0 / KAPPA,
    gamma=1.0 - 1.0 / KAPPA,
)
COLUMNS = ("table", "method", "what", "steps_as_printed", "formula", "order", "proved", "proved_steps", "remark")
_MOST_STEPS = 10_000


def hong_tables(progress: Progress | None = None) -> Reproduction:
    """Hong, Wang, Zhou 2022, Tables 1 and 2: excess risk of ten methods as printed, orders only, and what is proved of the paper's own.

    Args:
        progress: told (lines done, lines in all).
    """
    risks, rows = proved_risks(), list[tuple[Cell, ...]]()
    lines = [(number, row) for number, table in ((1, TABLE_1), (2, TABLE_2)) for row in table]
    for count, (number, row) in enumerate(lines, 1):
        value, steps = _proved(row, risks)
        orders = (row.steps(SETTING).value, row.bound_formula, row.bound(SETTING).value)
        rows.append((number, row.key, row.what, *orders, value, steps, row.remark or None))
        if progress is not None:
            progress(count, len(lines))
    return Reproduction(
        name="hong-tables",
        title="Hong, Wang & Zhou 2022, Tables 1 and 2: excess risk as printed, an order with constant 1, and as proved",
        source="Hong, Wang, Zhou, Dynamic privacy budget allocation improves data efficiency of differentially private gradient descent, "
        "FAccT 2022, doi:10.1145/3531146.3533070, Tables 1 and 2, Appendix B.",
        shape="orders",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            f"At D = {SETTING.dimension}, N = {SETTING.records}, R = {SETTING.budget:.6g}, epsilon = {EPSILON:g}, delta = {DELTA:g}, "
            f"p = {SETTING.failure:g}, M = G = 1, kappa = {KAPPA:g}, momentum {BETA:g}, initial gap {GAP:g}: chosen here, but for D, N and "
            "the budget. Every unnamed constant of an order is 1: orders compare with each other and bound nothing.",
            "proved: the corrected bounds at their best number of steps, in expectation over the noise; of Table 2 by the corrected "
            "Theorem 4.11 with probability 1 - p over the records, and by the stability of the last iterate in expectation over them.",
            "Momentum's proof allows short steps only, so that its bound is the larger one; of its stability nothing is proved.",
        ),
    )


def proved_risks() -> dict[str, tuple[float, int]]:
    """Of the paper's own methods the least bound of the excess risk, and the number of steps that has it."""
    alpha = noise_to_gap(
        dimension=SETTING.dimension, gradient_bound=1.0, budget=SETTING.budget, smoothness=1.0, records=SETTING.records, initial_gap=GAP
    )
    relative_step = largest_relative_step(kappa=KAPPA, beta=BETA)

    def least(bound: Callable[..., float]) -> tuple[float, int]:
        def value(steps: int) -> float:
            return bound(steps, kappa=KAPPA, beta=BETA, relative_step=relative_step, alpha=alpha)

        steps = least_whole(value, _MOST_STEPS, tolerance=0.0)
        return GAP * value(steps), steps

    plain = {"gd-static": best_steps_uniform(KAPPA, alpha), "gd-dynamic": best_steps_dynamic(KAPPA, alpha)}
    risks = {key: (GAP * best.value, best.steps) for key, best in plain.items()}
    return risks | {"momentum-static": least(erub_momentum_uni), "momentum-dynamic": least(erub_momentum_dyn)}


def _proved(row: Row, risks: dict[str, tuple[float, int]]) -> tuple[float | None, int | None]:
    kind, _, method = row.key.partition("-") if row.key.startswith(("likely-", "stable-")) else ("", "", row.key)
    if method not in risks or (kind == "stable" and method.startswith("momentum")):
        return None, None
    excess, steps = risks[method]
    convexity, records = SETTING.strong_convexity, SETTING.records
    if kind == "likely":
        excess = ter_high_probability(
            excess=excess, gradient_bound=1.0, strong_convexity=convexity, records=records, failure=SETTING.failure
        )
    if kind == "stable":
        stable = uniform_stability(
            gradient_bound=1.0, step_size=1.0, smoothness=1.0, steps=steps, records=records, strong_convexity=convexity
        )
        excess = ter_expectation(excess=excess, stability=stable)
    assert math.isfinite(excess)
    return excess, steps

r"""Lowy & Razaviyayn, Figure 1: rates at k = 2 as printed, and what is proved with every constant of one and the same problem.

$\tilde r_2 = \sqrt d$, $\beta = D = 1$ as in its text, $d = 40$, $\epsilon = 1$ (so $\rho = 1/2$), $\kappa = 10$ and, of the earlier work,
$\kappa_f = 100$ for strongly convex losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.accelerated import accelerated_optimised
from lethe.heavy_tailed.one_pass import one_pass_optimised
from lethe_experiments.base import Progress, Reproduction
from lethe_experiments.lower_bounds.bounds import convex_lower_bound, strongly_convex_lower_bound

DIMENSION, RHO, DIAMETER, SMOOTHNESS, CONDITION, WORST_CONDITION = 40, 0.5, 1.0, 1.0, 10.0, 100.0
SIZES = (10**4, 10**6, 10**8, 10**10)
COLUMNS = ("losses", "direction", "bound", "formula", "records", "order", "proved")

Rate = Callable[[int, int], float]
"""(n, d) -> a rate at epsilon = 1, its constant left out."""


class _Line(NamedTuple):
    losses: str
    direction: str  # from above or below
    bound: str
    formula: str
    order: Rate
    proved: Callable[[int], float] | None  # n -> with every constant; None: its source states an order only


def convex_order(n: int, d: int) -> float:
    r"""Theorem 9 at k = 2, as printed after Remark 10; the sharper of its two choices of T."""
    return convex_lower_order(n, d) + min(d ** (2 / 3) / n ** (4 / 9), d**0.75 / math.sqrt(n) * (n / d) ** (1 / 16))


def convex_lower_order(n: int, d: int) -> float:
    """Theorem 7 at k = 2."""
    return math.sqrt(d / n) + d**0.75 / math.sqrt(n)


def earlier_convex_order(n: int, d: int) -> float:
    """Theorem 5.4 of Kamath, Liu & Zhang, as printed there."""
    return d / math.sqrt(n)


def strongly_convex_order(n: int, d: int, *, sampling: float = 1.0, privacy: float = 1.0) -> float:
    r"""$\frac d\mu\big(\frac an + \frac{b\sqrt d}{\epsilon n}\big)$: Theorem 8 with a = b = 1, Theorem 11 with $b = \sqrt\kappa$."""
    return d * CONDITION / SMOOTHNESS * (sampling + privacy * math.sqrt(d)) / n


def lowy_razaviyayn_figure_1(progress: Progress | None = None) -> Reproduction:
    """Lowy & Razaviyayn 2023, Figure 1: risk of private optimisation at k = 2, orders as printed and bounds with every constant.

    Args:
        progress: told (lines done, lines in all).
    """
    lines, rows = _lines(), []
    for count, line in enumerate(lines, 1):
        for n in SIZES:
            value = None if line.proved is None else line.proved(n)
            rows.append((*line[:4], n, line.order(n, DIMENSION), value))
        if progress is not None:
            progress(count, len(lines))
    return Reproduction(
        name="lowy-razaviyayn-figure-1",
        title="Lowy & Razaviyayn 2023, Figure 1: excess risk at k = 2, orders as printed and bounds with every constant",
        source="Lowy, Razaviyayn, Private stochastic optimization with large worst-case Lipschitz parameter, arXiv:2209.07403, Figure 1.",
        shape="rates",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            "The figure is a picture; its orders are taken from the text: after Remark 10, Theorems 7, 8 and 11 at k = 2, (6) for the "
            "earlier work. Logarithms are left out.",
            f"d = {DIMENSION}, epsilon = 1, D = beta = 1, r_2 = sqrt(d) = {math.sqrt(DIMENSION):.4g}, kappa = {CONDITION:g}, kappa_f = "
            f"{WORST_CONDITION:g}. No risk is above r_2 D = {math.sqrt(DIMENSION):.4g}: a bound above it says nothing.",
            "proved, from above: the smallest accelerated_bound or one_pass_bound over steps and clip norms; from below: "
            "convex_lower_bound and strongly_convex_lower_bound, about the worst distribution.",
            "At k = 2 the correction of Theorem 9 (r_2 for r_k in the number of steps) changes nothing, and its printed order follows.",
            "The last line is what follows from the ingredients of (6) by the triangle inequality in mean square, without the factor "
            "kappa_f that the correction is said to cost: lethe_experiments.lowy_razaviyayn.recursion.",
        ),
    )


def figure_problem(*, strongly: bool = False) -> Problem:
    """The problem that all bounds are about."""
    return Problem(
        gradient=lambda parameters, records: np.asarray(records),
        dimension=DIMENSION,
        domain=BallDomain(radius=DIAMETER / 2.0),
        smoothness=SMOOTHNESS,
        strong_convexity=SMOOTHNESS / CONDITION if strongly else None,
        moments=Moments(order=2.0, bound=math.sqrt(DIMENSION)),
    )


def _lines() -> list[_Line]:
    convex, strongly, worst = figure_problem(), figure_problem(strongly=True), WORST_CONDITION
    least = r"sqrt(d/n) + d^(3/4)/sqrt(eps n)"
    more = r"min(d^(2/3)/(eps n)^(4/9), d^(3/4)/sqrt(eps n) (n/d)^(1/16))"
    printed, mended = {"sampling": worst**3, "privacy": worst**1.5}, {"sampling": worst**2, "privacy": worst**2.5}

    def strong(**factors: float) -> Rate:
        return lambda n, d: strongly_convex_order(n, d, **factors)

    return [
        _Line("convex", "below", "Theorem 7", least, convex_lower_order, lambda n: convex_lower_bound(convex, n, RHO).value),
        _Line("convex", "above", "Theorem 9", f"{least} + {more}", convex_order, lambda n: accelerated_optimised(convex, n, RHO).bound),
        _Line("convex", "above", "Kamath et al. 2022, Theorem 5.4", "d/sqrt(n)", earlier_convex_order, None),
        _Line(
            "strongly convex",
            "below",
            "Theorem 8",
            "d/mu (1/n + sqrt(d)/(eps n))",
            strong(),
            lambda n: strongly_convex_lower_bound(strongly, n, RHO).value,
        ),
        _Line(
            "strongly convex",
            "above",
            "Theorem 11",
            "d/mu (1/n + sqrt(d kappa)/(eps n))",
            strong(privacy=math.sqrt(CONDITION)),
            lambda n: one_pass_optimised(strongly, n, RHO).bound,
        ),
        _Line(
            "strongly convex",
            "above",
            "Kamath et al. 2022 as corrected in (6)",
            "d/mu (kappa_f^3/n + sqrt(d kappa_f^3)/(eps n))",
            strong(**printed),
            None,
        ),
        _Line(
            "strongly convex",
            "above",
            "the same, from its ingredients",
            "d/mu (kappa_f^2/n + sqrt(d kappa_f^5)/(eps n))",
            strong(**mended),
            None,
        ),
    ]

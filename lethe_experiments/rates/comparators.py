"""What a row of a published comparison is: orders of magnitude, each number marked as no guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lethe.calculus.domains import as_number, outside, require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe_experiments.ranges import require_between, require_inside
from lethe_experiments.standing import PublishedNumber, order


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    r"""What the tables are evaluated at; every unnamed constant of an order is 1.

    Args:
        dimension: $D \ge 1$.
        records: $N \ge 1$, with $N^2\min(R, R_e) > D$: the orders take $\ln(N^2R/D)$ steps.
        budget: $R > 0$, twice the rho of zCDP.
        epsilon: $\epsilon > 0$ of the methods accounted in $(\epsilon, \delta)$.
        delta: $\delta \in (0, 1)$ of those.
        failure: $p \in (0, 1)$, where a bound holds with probability $1 - p$.
        gradient_bound: $G > 0$; the tables take 1.
        strong_convexity: $\mu > 0$; Table 1 takes 1.
        gamma: $\gamma \in (0, 1)$, decay of the gap in a step.
        turn: $\hat T \ge 1$ of momentum.
        round_records: $n \le N$, records in a round of a growing database; N when None.
        exponent: $c \in (0, 1]$ of a growing database.
    Raises:
        InputError: a number is outside its range, or there are too few records for a step.
    """

    dimension: int
    records: int
    budget: float
    epsilon: float
    delta: float
    failure: float = 0.1
    gradient_bound: float = 1.0
    strong_convexity: float = 1.0
    gamma: float = 0.9
    turn: int = 1
    round_records: int | None = None
    exponent: float = 0.5

    def __post_init__(self) -> None:
        for name in ("dimension", "records", "turn"):
            require_count(name, getattr(self, name))
        for name in ("budget", "epsilon", "gradient_bound", "strong_convexity"):
            require_positive(name, getattr(self, name))
        for name in ("delta", "failure", "gamma"):
            require_inside(name, getattr(self, name))
        if not 0.0 < as_number("exponent", self.exponent, "a number in (0, 1]") <= 1.0:
            raise outside("exponent", self.exponent, "a number in (0, 1]")
        if self.round_records is not None and require_count("round_records", self.round_records) > self.records:
            raise outside("round_records", self.round_records, f"a whole number from 1 to records = {self.records}")
        smaller = min(self.information, self.information * self.approximate_budget / self.budget)
        if not 1.0 < smaller < math.inf:
            raise InputError(
                f"records^2 times budget over dimension = {smaller:g}; the orders need more than 1, or they would take no step.",
                source="the arguments records, dimension, budget, epsilon and delta",
                remedy="take more records or a larger budget.",
            )

    @property
    def information(self) -> float:
        """$N^2R/D$."""
        return float(self.records) ** 2 * self.budget / self.dimension

    @property
    def approximate_budget(self) -> float:
        r"""$R_e = \epsilon^2/\ln(1/\delta)$."""
        return self.epsilon**2 / math.log(1.0 / self.delta)

    @property
    def steps(self) -> float:
        r"""$\ln(N^2R/D)$, the number of steps of the table's methods."""
        return math.log(self.information)

    @property
    def late(self) -> float:
        r"""The indicator of $T > \hat T$, 0 or 1."""
        return float(self.steps > self.turn)


Formula = Callable[[Setting], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""A method of a published table. Every number it gives is an order with constant 1 and says so.

    Args:
        key: short name.
        what: the method and what it assumes.
        bound_formula: the risk, in LaTeX.
        bound_order: the same as a function.
        steps_formula: T, in LaTeX.
        steps_order: the same as a function.
        variance_formula: $\sigma_t^2$ in LaTeX; empty where the table gives none.
        variance_order: the same as a function of the setting and t; None where the table gives none.
        remark: what is wrong with the row, as far as known.
    """

    key: str
    what: str
    bound_formula: str
    bound_order: Formula
    steps_formula: str = r"\ln(N^2R/D)"
    steps_order: Formula = lambda setting: setting.steps
    variance_formula: str = ""
    variance_order: Callable[[Setting, float], float] | None = None
    remark: str = ""

    def bound(self, setting: Setting) -> PublishedNumber:
        """The excess risk, an order; loss units in which the loss is 1-smooth and 1-Lipschitz."""
        return order(require_nonnegative("the order of the risk", self.bound_order(setting)), self.bound_formula)

    def steps(self, setting: Setting) -> PublishedNumber:
        """T, an order."""
        return order(self.steps_order(setting), self.steps_formula)

    def variance(self, setting: Setting, step: float) -> PublishedNumber:
        r"""$\sigma_t^2$ at step t, an order; the square of a noise multiplier.

        Raises:
            InputError: the table gives no noise for this method, or the step is below 1.
        """
        if self.variance_order is None:
            raise InputError(
                f"{self.key} states no noise; only Table 1 does.", source=f"the row {self.key}", remedy="take a row of TABLE_1."
            )
        at = require_between("step", step, low=1.0, needed="a number >= 1")
        return order(self.variance_order(setting, at), self.variance_formula)

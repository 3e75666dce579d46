r"""Privacy odometer: bounds on the privacy spent so far that hold at adaptively chosen moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lethe.calculus.domains import outside, require_delta, require_nonnegative, require_positive, require_vector
from lethe.calculus.rounding import round_up
from lethe.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    r"""A bound on the privacy loss that holds at all times at once: with $S$ the sum of the zCDP costs so far,

    $$\epsilon(S) = \min_k\; S + \sqrt{\log\frac{1}{\delta w_k}}\,\Big(\frac{S}{\sqrt{\rho_k}} + \sqrt{\rho_k}\Big),$$

    which at a level $S = \rho_k$ is $\rho_k + 2\sqrt{\rho_k\log(1/(\delta w_k))}$ and between two levels is below that of the upper one.

    Formal guarantee: let the costs, their number and the moment of looking be chosen in view of all that was released, each cost before
    its step. With probability at least $1 - \delta$ the privacy loss is at most $\epsilon(S)$ at every step, so also at the one where
    someone stops; for either of the two data sets. In particular, "go on while $\epsilon(S) \le \epsilon_0$" is
    $(\epsilon_0, \delta)$-DP for every $\epsilon_0$. $\delta$ and the grid must be fixed before the first step.
    Proof: at a fixed order $\alpha$, $\exp((\alpha-1)L_t - \alpha(\alpha-1)S_t)$ is a supermartingale that starts at 1. By Ville's
    inequality it ever reaches $1/(\delta w_k)$ with probability at most $\delta w_k$; otherwise
    $L_t \le \alpha S_t + \log(1/(\delta w_k))/(\alpha-1)$ at all t. Take $\alpha = 1 + \sqrt{\log(1/(\delta w_k))/\rho_k}$ for each k:
    these orders do not depend on the outcome, the probabilities add up to $\delta$, and the smallest line is a bound.

    Why the guarantee at the moment of stopping may NOT be taken to be `ZCDP(spent)`: a run may stop exactly when its loss is large for
    what it spent. Small budgets come round often (each doubling of S is nearly a fresh chance), so some moment looks bad almost surely
    (the law of the iterated logarithm); the statement for S is true at each fixed moment and false at that one.
    Why the tails of the loss and not the tighter conversions of zCDP: a sum over levels needs events, "the loss ever exceeds
    this line", whose probabilities add. The tighter conversions bound the mean of $(1 - e^{\epsilon-L})_+$ at one $\epsilon$
    fixed in advance, not the probability of any event, and they know nothing of the times in between.

    Args:
        levels: $\rho_k > 0$, shape (K,): budgets at which the bound shall be tightest.
        weights: $w_k > 0$, shape (K,), sum at most 1 (1e-9 of rounding is forgiven): the share of $\delta$ each level gets.
    Raises:
        InputError: an argument is outside its range.
    Reference: Rogers et al. 2016, arXiv:1605.08294 (odometers); Whitehouse et al. 2023, arXiv:2203.05481 (by martingales).
    """

    levels: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        levels = require_vector("levels", self.levels, low=0.0, strict=True)
        weights = require_vector("weights", self.weights, low=0.0, strict=True)
        if levels.shape != weights.shape:
            raise InputError(
                f"{levels.size} levels and {weights.size} weights; an odometer needs one weight a level.",
                source="the arguments levels and weights",
                remedy="give both the same length",
            )
        total = math.fsum(weights.tolist())
        if total > 1.0 + 1e-9:
            raise outside("the sum of the weights", total, "a number at most 1")
        object.__setattr__(self, "levels", tuple(levels.tolist()))
        object.__setattr__(self, "weights", tuple(weight / max(total, 1.0) for weight in weights.tolist()))

    @classmethod
    def up_to(cls, rho: float, levels: int = 10) -> Odometer:
        r"""Equal weights on $\rho, \rho/2, \rho/4, \dots$: good at every time a filter of budget $\rho$ may be looked at.

        Raises:
            InputError: `rho` is not positive and finite, or `levels` is no integer in 1..1000.
        """
        budget = require_positive("rho", rho)
        if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= 1000:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise outside("levels", levels, "an integer in 1..1000")
        return cls(levels=tuple(budget * 0.5**k for k in range(levels)), weights=(1.0 / levels,) * levels)

    def epsilon(self, spent: float, delta: float) -> float:
        r"""$\epsilon(S)$ at $\delta$, rounded up.

        Args:
            spent: $S \in [0, \infty]$, the sum of the costs so far.
            delta: $\delta \in [0, 1)$, fixed in advance.
        Returns:
            $\epsilon$; 0 where nothing is spent, infinity for $\delta = 0$ otherwise.
        Raises:
            InputError: an argument is outside its range.
        """
        total, target = require_nonnegative("spent", spent), require_delta(delta)
        if total == 0.0:
            return 0.0
        if target == 0.0 or math.isinf(total):
            return math.inf
        lines: list[float] = []
        for level, weight in zip(self.levels, self.weights, strict=True):
            tail, root = math.sqrt(-math.log(target) - math.log(weight)), math.sqrt(level)
            lines.append(total + tail * (total / root + root))
        return round_up(min(lines), 2e-15)  # ten roundings of positive numbers

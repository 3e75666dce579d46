"""The two private queries of DP-AGD, each charged to the budget before it is answered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lethe.calculus.domains import require_positive
from lethe.calculus.filters import BudgetFilter
from lethe.calculus.rounding import round_down, round_up
from lethe.run.losses.linear import LinearLoss
from lethe.train.linear.gradients import LinearModel, losses_of
from lethe_experiments.adaptive.plan import AdaptiveDescent

_EVERYTHING = slice(None)


class PaidQueries:
    """Noisy gradients and noisy comparisons of all records, out of one budget.

    Args:
        plan: gives the budget, the clip norms, the neighbouring relation and the cost of a comparison.
        loss: with the number of its classes.
        rows: features as the trainer prepares them, shape (n, d), float64.
        targets: shape (n, 1).
        generator: for the noise.
    """

    __slots__ = ("_epsilon", "_generator", "_loss", "_model", "_plan", "_rows", "_targets", "budget")

    def __init__(self, plan: AdaptiveDescent, loss: LinearLoss, rows: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        self.budget = BudgetFilter(plan.rho)
        self._plan = plan
        self._loss = loss
        self._rows = rows
        self._targets = targets
        self._model = LinearModel(loss, rows, targets, clip_norm=plan.gradient_clip)
        self._generator = generator
        # Rounded down: the Laplace noise of a slightly smaller epsilon is a little more than is paid for.
        self._epsilon = round_down(math.sqrt(2.0 * plan.selection_rho), 1e-15)

    def gradient(self, parameters: Tensor, rho: float) -> Tensor:
        r"""$\sum_i \mathrm{Clip}_{C_g}(\nabla f_i) + N(0, \Delta^2/(2\rho)\,I)$ with $\Delta = fC_g$: a Gaussian mechanism of cost `rho`.

        Raises:
            BudgetExceededError: the budget does not reach.
        """
        self.budget.spend(rho)
        noise_std = round_up(self._plan.touch_factor * self._plan.gradient_clip / math.sqrt(2.0 * rho), 1e-15)
        noise = torch.randn(parameters.shape, generator=self._generator, dtype=parameters.dtype)
        return self._model.clipped_gradient_sum(parameters, _EVERYTHING) + noise_std * noise

    def best(self, parameters: Tensor, direction: Tensor, lengths: Tensor) -> int:
        """The index of the step length that lowers the sum of clipped losses most, as far as `selection_rho` can tell.

        Args:
            parameters: shape (d, k).
            direction: shape (d, k); a step of length a leads to `parameters` - a `direction`.
            lengths: the step lengths to compare, shape (K,).
        Raises:
            BudgetExceededError: the budget does not reach.
        """
        self.budget.spend(self._plan.selection_rho)
        scores, slopes = self._rows @ parameters, self._rows @ direction
        return noisy_min(
            torch.stack([self.clipped_losses(scores - length * slopes) for length in lengths]),
            bound=self._plan.loss_clip,
            epsilon=self._epsilon,
            touch_factor=self._plan.touch_factor,
            generator=self._generator,
        )

    def clipped_losses(self, scores: Tensor) -> Tensor:
        r"""$\sum_i \min(f_i, C)$ over all records at these scores, shape (n, k); every record's share lies in [0, C]."""
        return losses_of(self._loss, scores, self._targets).clamp_(0.0, self._plan.loss_clip).sum()


def noisy_min(losses: Tensor, *, bound: float, epsilon: float, touch_factor: float, generator: torch.Generator) -> int:
    r"""The index of the smallest of $q_j + \nu_j$, $\nu_j$ independent Laplace noise of scale $fC/\epsilon$.

    Formal guarantee: let $q_j = \sum_i \ell_{ij}$ with every $\ell_{ij} \in [0, C]$, and release the index alone. It is
    $\epsilon$-DP, so $(\epsilon^2/2)$-zCDP, with f = 1 when one record is zeroed out, added or removed, and with f = 2 when one is
    replaced. (A record that is zeroed out has no gradient: its loss is the same for all candidates, and what is the same for all
    moves no minimum.)
    Proof: on the neighbour $q'_j = q_j + c_j$. Fix an index i and the noise of the others. On the first data set i wins iff
    $\nu_i < m - q_i$ with $m = \min_{j\ne i}(q_j + \nu_j)$; on the second iff $\nu_i < m' - q_i - c_i$, where $m' - m$ lies between the
    least and the largest of the $c_j$. If all of them lie in $[0, C]$, or all in $[-C, 0]$, then the threshold moves by
    $|(m' - m) - c_i| \le C$; if they lie in $[-C, C]$, by at most 2C. The logarithm of a Laplace distribution function of scale b is
    1/b-Lipschitz, so the conditional probability of i changes by at most the factor $e^{\epsilon}$, and so does its mean over the others.
    That $\epsilon$-DP implies $(\epsilon^2/2)$-zCDP is Proposition 1.4 of Bun & Steinke.

    Args:
        losses: $q_j$, shape (K,), float64.
        bound: C > 0, the largest loss of a record.
        epsilon: > 0.
        touch_factor: f, 1 or 2.
        generator: on the device of `losses`.
    Returns:
        An index 0..K-1.
    Raises:
        InputError: `bound` or `epsilon` is not a finite number > 0.
    Reference: Dwork & Roth 2014, section 3.3 (scale C/epsilon for counts, 1 record added); Bun & Steinke 2016, arXiv:1605.02065.
    """
    scale = touch_factor * require_positive("bound", bound) / require_positive("epsilon", epsilon)
    one, other = (torch.empty_like(losses).exponential_(generator=generator) for _ in range(2))
    return int((losses + scale * (one - other)).argmin())  # the difference of two exponentials is Laplace

r"""Second and third derivatives of the three losses in their scores, in the factored form that random probes need.

For a positive semidefinite $S$ and a matrix $R$ with $RR^\top = S$, $R z$ with $z \sim N(0, I)$ has covariance S. Everything is per
record: scores and directions have shape (..., n, k) with one row for each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from lethe.run.losses import LeastSquares, Logistic
from lethe.train.linear.links import LinearLoss


class ScoreCurvature(ABC):
    """The curvature of each record's loss at given scores."""

    @abstractmethod
    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """The second derivative S times each direction, shape (..., n, k)."""

    @abstractmethod
    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """R times the noise, shape (..., n, k), where R R' = S."""

    def bend_roots(self, direction: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Roots of the two parts of the third derivative along `direction`, T = T+ - T-, times the two halves of the noise.

        Args:
            direction: shape (n, k).
            noise: shape (2, ..., n, k).
        Returns:
            The two products, or None where the third derivative is 0.
        """
        return None


class SoftmaxCurvature(ScoreCurvature):
    r"""$S = \mathrm{diag}(p) - pp^\top$, the covariance of a random class c, and $T = \mathbb{E}[a_c (e_c - p)(e_c - p)^\top]$.

    Here $p = \mathrm{softmax}$ of the scores and $a = s - p\cdot s$ for the direction $s$.
    """

    def __init__(self, scores: torch.Tensor) -> None:
        self._chances = torch.softmax(scores, dim=-1)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """p (s - p.s)."""
        return self._chances * self._centred(directions)

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """As a weighted covariance with weights p."""
        return self._weighted(self._chances, noise)

    def bend_roots(self, direction: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split by the sign of a_c."""
        weights = self.product(direction)
        return self._weighted(weights.clamp(min=0), noise[0]), self._weighted((-weights).clamp(min=0), noise[1])

    def _centred(self, directions: torch.Tensor) -> torch.Tensor:
        return directions - (self._chances * directions).sum(dim=-1, keepdim=True)

    def _weighted(self, weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        # sum_c sqrt(w_c) z_c (e_c - p)
        scaled = weights.sqrt() * noise
        return scaled - self._chances * scaled.sum(dim=-1, keepdim=True)


class LogisticCurvature(ScoreCurvature):
    r"""$S = p(1-p)$, $T = p(1-p)(1-2p)\,s$ with $p = \mathrm{sigmoid}$ of the score."""

    def __init__(self, scores: torch.Tensor) -> None:
        chances = torch.sigmoid(scores)
        self._second = chances * (1 - chances)
        self._third = self._second * (1 - 2 * chances)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """S s."""
        return self._second * directions

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """sqrt(S) z."""
        return self._second.sqrt() * noise

    def bend_roots(self, direction: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split by sign."""
        bend = self._third * direction
        return bend.clamp(min=0).sqrt() * noise[0], (-bend).clamp(min=0).sqrt() * noise[1]


class LeastSquaresCurvature(ScoreCurvature):
    """S = 1 where the residual is not truncated, else 0: the derivative almost everywhere."""

    def __init__(self, scores: torch.Tensor, targets: torch.Tensor, residual_bound: float) -> None:
        self._inside = ((scores - targets).abs() < residual_bound).to(scores.dtype)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """S s."""
        return self._inside * directions

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """S is its own root."""
        return self._inside * noise


def score_curvature(loss: LinearLoss, scores: torch.Tensor, targets: torch.Tensor) -> ScoreCurvature:
    """The curvature of `loss` at these scores, shape (n, k); targets have shape (n, 1)."""
    if isinstance(loss, LeastSquares):
        return LeastSquaresCurvature(scores, targets, loss.residual_bound)
    return LogisticCurvature(scores) if isinstance(loss, Logistic) else SoftmaxCurvature(scores)

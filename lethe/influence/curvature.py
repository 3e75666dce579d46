r"""The curvature of each record's loss in its scores, in the factored form that random probes need."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from lethe.errors import InputError
from lethe.run.losses import Logistic, Softmax
from lethe.run.losses.linear import LinearLoss


def curvature_of(loss: LinearLoss, scores: torch.Tensor, targets: torch.Tensor) -> ScoreCurvature:
    """The curvature of the loss at these scores.

    Args:
        loss: with the number of its classes.
        scores: shape (n, k), float64.
        targets: shape (n, 1).
    Raises:
        InputError: the third derivative of the loss is not known.
    """
    match loss:
        case Softmax():
            return SoftmaxCurvature(scores)
        case Logistic():
            return LogisticCurvature(scores)
        case _:
            return DiagonalCurvature(loss, scores, targets)


class ScoreCurvature(ABC):
    r"""The curvature of each record's loss at given scores, in the factored form that random probes need.

    For a positive semidefinite $S$ and a matrix $R$ with $RR^\top = S$, $R z$ with $z \sim N(0, I)$ has covariance S. Everything is per
    record: scores and directions have shape (..., n, k) with one row for each record.
    """

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


class DiagonalCurvature(ScoreCurvature):
    """The curvature of a loss with quadratic pieces whose second derivatives are diagonal: the derivative almost everywhere."""

    def __init__(self, loss: LinearLoss, scores: torch.Tensor, targets: torch.Tensor) -> None:
        curvatures = loss.curvatures(scores.numpy(), targets.to(torch.float64).squeeze(1).numpy())
        if curvatures.terms or not loss.quadratic_pieces:
            raise InputError(
                f"loss.kind: got {loss.kind}; its third derivative is not known here.",
                source="run.loss",
                remedy="use retraining_influence, which needs no derivative.",
            )
        self._diagonal = torch.from_numpy(curvatures.diagonal).to(scores)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """S s."""
        return self._diagonal * directions

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """sqrt(S) z."""
        return self._diagonal.sqrt() * noise


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

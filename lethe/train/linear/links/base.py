r"""Losses of linear models on PyTorch tensors: residuals and losses of scores, and derivatives for probes.

Each record's gradient is the outer product of its features $u$ with its residual $r = l'$, so its norm is $\|u\|\,\|r\|$.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.losses import LinearLoss


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
        curvatures = loss.curvatures(*_arrays(scores, targets))
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


class Link:
    r"""A loss on tensors: scores are $s = X^\top u$, shape (n, k); targets have shape (n, 1).

    The loss's own NumPy code computes in double precision, as all of this does, on the CPU.

    Args:
        loss: l, with the number of its classes.
    """

    def __init__(self, loss: LinearLoss) -> None:
        self.loss = loss

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The derivative of each record's loss in its scores, shape (n, k)."""
        return torch.from_numpy(self.loss.slopes(*_arrays(scores, targets))).to(scores.device)

    def envelope_residuals(self, scores: torch.Tensor, targets: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        """The derivative of the Lipschitz envelope of each record's loss in its scores, shape (n, k).

        Args:
            scores: shape (n, k).
            targets: shape (n, 1).
            bounds: c > 0 on the norm of each, shape (n, 1).
        """
        reach = bounds.detach().to(device="cpu", dtype=torch.float64).squeeze(1).numpy()
        return torch.from_numpy(self.loss.envelope_slopes(*_arrays(scores, targets), reach)).to(scores.device)

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Each record's loss, shape (n,)."""
        return torch.from_numpy(self.loss.values(*_arrays(scores, targets))).to(scores)

    def decide(self, scores: torch.Tensor) -> torch.Tensor:
        """The predicted class, or value, shape (n,)."""
        return torch.from_numpy(self.loss.decide(scores.detach().cpu().numpy())).to(scores.device)

    def curvature(self, scores: torch.Tensor, targets: torch.Tensor) -> ScoreCurvature:
        """The curvature of the loss at these scores.

        Raises:
            InputError: the third derivative of the loss is not known.
        """
        return DiagonalCurvature(self.loss, scores, targets)


def _arrays(scores: torch.Tensor, targets: torch.Tensor) -> tuple[FloatArray, FloatArray]:
    """Scores of shape (n, k) and targets of shape (n,), as the losses take them."""
    return (
        scores.detach().to(device="cpu", dtype=torch.float64).numpy(),
        targets.detach().to(device="cpu", dtype=torch.float64).squeeze(1).numpy(),
    )

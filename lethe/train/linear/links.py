r"""Losses of linear models on tensors: residuals and losses of scores, from their NumPy code or with tensor operations of their own.

Each record's gradient is the outer product of its features $u$ with its residual $r = l'$, so its norm is $\|u\|\,\|r\|$.
"""

from __future__ import annotations

from functools import cache

import torch

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.losses import LOSSES, LeastSquares, LinearLoss, Logistic, Loss, Softmax


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


class LeastSquaresLink(Link):
    r"""Huber's loss: $r = \max(-B, \min(B, s - y))$; $f = r^2/2$ inside, linear outside.

    B is rounded down to a number of the scores' type: with a constant feature nothing else makes up for a bound that was rounded up.

    Args:
        loss: with B > 0, in target units.
    """

    def __init__(self, loss: LeastSquares) -> None:
        super().__init__(loss)
        self.residual_bound = loss.residual_bound

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """s - y, truncated at +-B."""
        bound = _at_most(self.residual_bound, scores.dtype)
        return (scores - targets).clamp_(-bound, bound)

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """r (s - y - r/2): the square inside, the tangent outside."""
        truncated = self.residuals(scores, targets)
        return (truncated * (scores - targets - truncated / 2)).squeeze(1)


class LogisticLink(Link):
    r"""$f = \log(1 + e^{-ys})$ with $y = 2t - 1$ for the target $t \in \{0, 1\}$: $r = \mathrm{sigmoid}(s) - t$, $|r| \le 1$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """sigmoid(s) - t, which is -y sigmoid(-ys)."""
        return torch.sigmoid(scores) - targets

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """log(1 + exp(-ys))."""
        return torch.logaddexp(torch.zeros_like(scores), (1 - 2 * targets) * scores).squeeze(1)


class SoftmaxLink(Link):
    r"""$f = -\log\mathrm{softmax}(s)_y$, $r = \mathrm{softmax}(s) - e_y$, $\|r\| \le \sqrt2$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """softmax(s) - e_y."""
        return torch.softmax(scores, dim=1).scatter_add_(1, targets, scores.new_full(targets.shape, -1.0))

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy."""
        return -torch.log_softmax(scores, dim=1).gather(1, targets).squeeze(1)


def link_of(loss: LinearLoss) -> Link:
    """The link of a loss."""
    match loss:
        case LeastSquares():
            return LeastSquaresLink(loss)
        case Softmax():
            return SoftmaxLink(loss)
        case Logistic():
            return LogisticLink(loss)
        case _:
            return Link(loss)


def linear_loss(loss: Loss) -> LinearLoss:
    """`loss`, if it is one whose facts the pipeline can enforce.

    Raises:
        InputError: another kind of loss.
    """
    if isinstance(loss, LinearLoss):
        return loss
    kinds = [kind for kind, known in LOSSES.items() if issubclass(known, LinearLoss)]
    raise InputError(
        f"loss.kind: got {loss.kind}; fit_linear trains {', '.join(kinds[:-1])} and {kinds[-1]}.",
        source="loss",
        remedy="choose one of these with a feature_norm, or train the model itself with lethe.train.fit.",
    )


def _arrays(scores: torch.Tensor, targets: torch.Tensor) -> tuple[FloatArray, FloatArray]:
    """Scores of shape (n, k) and targets of shape (n,), as the losses take them."""
    return (
        scores.detach().to(device="cpu", dtype=torch.float64).numpy(),
        targets.detach().to(device="cpu", dtype=torch.float64).squeeze(1).numpy(),
    )


@cache
def _at_most(bound: float, dtype: torch.dtype) -> float:
    """The largest number of the type that is no more than `bound`."""
    rounded = torch.tensor(bound, dtype=dtype)
    return (rounded if rounded.item() <= bound else torch.nextafter(rounded, torch.zeros_like(rounded))).item()

"""The weighted average of a pass's iterates, where its last step goes on from."""

from __future__ import annotations

import torch

from lethe.run.schedules import Array


class PassAverage:
    r"""Returns $y_1, y_2, \dots$ of a pass unchanged, but $\sum_k \omega_k y_k$ at the last step of the pass; then begins anew.

    Every $y_k$ stands before its proximal step and before any noise. Weights that are 0 take no part: with $\omega = (0, \dots, 0, 1)$
    the result is $y_\ell$ bit for bit.

    Args:
        weights: $\omega_k \ge 0$, shape (l,), sum 1; None: give everything back unchanged.
    """

    __slots__ = ("_place", "_sum", "weights")

    def __init__(self, weights: Array | None) -> None:
        self.weights: tuple[float, ...] | None = None if weights is None else tuple(weights.tolist())
        self._place = 0
        self._sum: torch.Tensor | None = None

    def __call__(self, moved: torch.Tensor) -> torch.Tensor:
        """The iterate itself, or the pass's average when it is the pass's last."""
        if self.weights is None:
            return moved
        weight = self.weights[self._place]
        if weight > 0:
            self._sum = weight * moved if self._sum is None else self._sum + weight * moved
        self._place += 1
        if self._place < len(self.weights):
            return moved
        averaged, self._sum, self._place = self._sum, None, 0
        assert averaged is not None  # some weight is positive
        return averaged

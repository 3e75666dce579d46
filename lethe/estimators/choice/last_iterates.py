r"""The mean of the last iterates: post-processing, where all of them are released.

$$\bar x = \frac1a\sum_{t=T-a+1}^T x_t$$
"""

from __future__ import annotations

import torch

from lethe.calculus.domains import require_count
from lethe.errors import HypothesisError
from lethe.run.run import Run


class LastIterates:
    r"""Adds up the last a iterates of a training, each after its noise and its proximal step.

    Args:
        run: that is carried out, of T steps.
        count: a in 1..T; 1: the last iterate itself, bit for bit.
    Raises:
        InputError: `count` is out of range.
        HypothesisError: more than one, and the run keeps its iterates to itself.
    """

    def __init__(self, run: Run, count: int) -> None:
        self._count, self._first = require_count("count", count, high=run.total_steps), run.total_steps - count + 1
        if count > 1 and run.release == "last":
            raise HypothesisError(
                f"the mean of the last {count} iterates: release is last, and a mean tells of iterates that nobody may see.",
                source="count, run.release",
                remedy="set release: all, whose certificate covers whatever is made of the iterates; or take the last iterate alone.",
            )
        self._sum: torch.Tensor | None = None

    def add(self, step: int, iterate: torch.Tensor) -> None:
        """Take an iterate, if it is one of the last.

        Args:
            step: t, from 1; each is told once, in order.
            iterate: $x_t$.
        """
        if step >= self._first:
            self._sum = iterate if self._sum is None else self._sum + iterate

    def mean(self) -> torch.Tensor:
        r"""$\bar x$, once all steps were told."""
        assert self._sum is not None
        return self._sum / self._count if self._count > 1 else self._sum

r"""Correlated noise from a cryptographic source, on a grid.

The noise is added to $a_t = \sum_{s\le t}C_{ts}g_s$, of the sums $g_s$ so far, by `SecureNoise`: $y_t = R(a_t) + R(z_t)$. Of
$y_1, \ldots, y_t$ alone, by forward substitution, comes $\hat g_t = (C^{-1}y)_t$, which is $g_t + (C^{-1}z)_t$ up to that rounding.

**Statement.** All $\hat g_t$ are a function of the $y_t$, and these of Gaussian mechanisms on $R(a_t)$ (`secure.py`). A record that moves
the $a_t$ by $\sqrt{\sum_t\|d_t\|^2} \le S_j$ moves the $R(a_t)$ by at most $S_j + \gamma\sqrt{dT}$ (Minkowski: T steps of d numbers). With
the standard deviation of `grid_noise_std` for the smallest $S_j$ and dT numbers it is as private as the exact mechanism, in every slot.
Where a record is drawn at steps of its group, the least that one draw moves, the shortest column of C, stands for $S_j$, without
the factor 2 of a replaced record (`least_move`; docs/theory.md).

Covered and not covered: as `secure.py` says; $a_t$ is computed in float64, as the sums are in the parameters' type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lethe.calculus.correlated.sensitivity import column_norms, slot_sensitivities
from lethe.run.noise.draws import Draws
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.train.core.noise_resolution import refuse_unstable
from lethe.train.core.tensors import checked_tensors
from lethe.train.network.noise.correlated import forget, load_state, state_of
from lethe.train.network.noise.secure import SecureNoise, grid_noise_std, least_move


class SecureCorrelatedNoise:
    """As `CorrelatedNetworkNoise`, of a `SecureNoise`; it keeps twice as much, and the sums of gradients among it.

    Args:
        run: with correlated noise.
        noise: the source.
        dtype: the coarsest of the parameters.
        dimension: how many numbers are trained, over all processes.
    Raises:
        LetheError: the noise would outgrow its draws.
    """

    __slots__ = ("_dimension", "_noise", "_noisy", "_run", "_smallest", "_sums", "fresh_share")

    def __init__(self, run: Run, noise: SecureNoise, dtype: torch.dtype, *, dimension: int) -> None:
        assert run.noise is not None
        refuse_unstable(run, dtype)
        self._run, self._noise, self._dimension = run, noise, dimension * run.total_steps
        self._sums, self._noisy = Draws(run.noise, product=True), Draws(run.noise)
        self._smallest = least_move(run) * _smallest_move(run)
        self.fresh_share = float("inf")  # no rounding can hide noise that is on a grid

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """Add the noise of the next step; see `CorrelatedNetworkNoise.add_to`."""
        checked = checked_tensors(tensors)
        if noise_std == 0.0:
            self._sums.none()
            self._noisy.none()
            return
        wider = grid_noise_std(noise_std, self._smallest, self._dimension)
        # On the CPU, where the noise is drawn and where a checkpoint puts the memory. A process may hold no number, and takes the step too.
        none = torch.empty(0, dtype=torch.float64)
        flat = torch.cat([none, *(tensor.detach().to(none).reshape(-1) for tensor in checked)])
        moved = self._sums.next(flat)
        self._noise.add_to([moved], wider)
        parts = self._noisy.next(moved).split([tensor.numel() for tensor in checked])
        for tensor, part in zip(checked, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def elsewhere(self, noise_std: float) -> None:
        """Another process adds the noise of the next step."""
        for draws in (self._sums, self._noisy):
            if noise_std == 0.0:
                draws.none()
            else:
                draws.elsewhere()

    def executed(self, recorded: Run, *, steps: int | None = None) -> Run:
        """As `Draws.executed`."""
        return self._noisy.executed(recorded, steps=steps)

    @property
    def any_length(self) -> bool:
        """See `CorrelatedNoise`."""
        return self._noisy.any_length

    def state_dict(self) -> dict[str, Any]:
        """As `CorrelatedNetworkNoise.state_dict`."""
        return state_of([self._sums, self._noisy])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As `CorrelatedNetworkNoise.load_state_dict`."""
        load_state([self._sums, self._noisy], state, torch.device("cpu"))

    def forget(self, steps: int) -> None:
        """As `CorrelatedNetworkNoise.forget`."""
        forget([self._sums, self._noisy], self._run, steps)


def _smallest_move(run: Run) -> float:
    assert run.noise is not None
    strategy = run.noise.strategy(run.total_steps)
    if run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP:
        return float(column_norms(strategy).min())
    return float(slot_sensitivities(strategy, run.steps_per_pass).min())

r"""A clip norm that follows a private quantile of the gradients' norms, for users who cannot guess a clip norm.

`clipper_of` (network/plan.py) makes one where clip_method is "adaptive"; `ClippedSums` asks it for the norm, `NoisySums` updates it once a
step. C is the run's clip norm, $g_i$ the gradient of record i, b the batch size, s the share of the privacy budget for the count, $\gamma$
the wanted share of gradients shorter than $C_t$, $\tilde h_t$ the noisy count.

Step t has a norm $C_t$, from $C_1 = C$ on, and a record the pair of its gradient clipped to $C_t$, in units of C, and its part of a count:

$$\Big(\frac{C}{C_t}\mathrm{Clip}_{C_t}(g_i),\; f h_i\Big),\qquad h_i \in [-\tfrac12, \tfrac12],\qquad f \le 2C\sqrt{\frac{s}{1-s}}$$

$h_i = \frac12$ below $C_t$, $-\frac12$ above, and 0 of no gradient. Its norm is at most $C/\sqrt{1-s}$, and so much larger is the
noise on the sum of pairs, which are one Gaussian mechanism (docs/theory.md, section 10). Then

$$C_{t+1} = C_t e^{-0.2(\tilde b_t - \gamma)},\qquad \tilde b_t = \tfrac12 + \tfrac1b\tilde h_t$$

Reference: Andrew et al. 2019, arXiv:1905.03871, algorithm 1 and theorem 1.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lethe.run.fields import COUNT_SHARE
from lethe.run.run import Run

_RATE = 0.2
# Along which a count goes from 1/2 to -1/2, relative to the norm, in steps of 2^-12: rounding of a norm flips no whole record.
_SLOPE, _GRID = 2.0**9, 2.0**12
# The norm is between so many of the first and its inverse, and f has so many bits: f times a count is exact in float64.
_RANGE, _BITS = 2.0**20, 12


class AdaptiveNorm:
    """The clip norm in force of a run with clip_method "adaptive".

    Attributes:
        norms: of the steps so far, and the next. Functions of released numbers, so public.
        key: stands for the count among the sums of a step, by parameter.
        count: of the step that is about to be noised, shape (1,), float64, times `unit`.
        unit: f, in units of the run's clip norm.
    """

    def __init__(self, run: Run) -> None:
        assert run.clip_quantile is not None
        self._first, self._quantile, self._size = run.clip_bound, run.clip_quantile, run.batch_size
        mantissa, exponent = math.frexp(2.0 * self._first * math.sqrt(COUNT_SHARE / (1.0 - COUNT_SHARE)))
        self.unit = math.ldexp(math.floor(math.ldexp(mantissa, _BITS)), exponent - _BITS)
        self.key, self.norms, self.count = nn.Parameter(torch.zeros(1, dtype=torch.float64)), [self._first], torch.zeros(0)

    @property
    def norm(self) -> float:
        r"""$C_t$."""
        return self.norms[-1]

    def counts(self, lengths: Tensor, counted: Tensor) -> Tensor:
        """$f\\sum_i h_i$, shape (1,), of records with gradients of these lengths, shape (B,), of which some count."""
        ramp = ((1.0 - lengths / self.norm) * _SLOPE).clamp(-0.5, 0.5)
        shares = torch.where(counted, torch.round(ramp * _GRID), 0.0)
        return (shares.sum() * (self.unit / _GRID)).reshape(1)

    def update(self) -> float:
        r"""Take the noised `count` over b, and go on to the next norm; returns $C_t/C$, for the noisy mean gradient."""
        before = self.norm
        below = min(max(0.5 + float(self.count) / self.unit, 0.0), 1.0)
        after = before * math.exp(-_RATE * (below - self._quantile))
        self.norms.append(min(max(after, self._first / _RANGE), self._first * _RANGE))
        return before / self._first

    def state_dict(self) -> dict[str, Any]:
        """The norms, for a checkpoint."""
        return {"norms": list(self.norms)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there: after steps that a kill lost, with the norm of the checkpoint, which is released as well."""
        self.norms = list(state["norms"])

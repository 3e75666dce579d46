"""What an estimator returns: the influence of noise at some steps, how sure that is, and the specification that schedules take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.errors import InputError
from lethe.run.schedules.base import Array
from lethe.run.schedules.influence import Basis, Influence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    r"""The influence of noise, measured: $q_t = \partial\,\mathbb{E} f(x_T) / \partial\tau_t^2$ at some of the steps $t = 1..T$.

    Args:
        steps: T.
        probes: the steps that were measured, counted from 1, increasing.
        weights: $q_t$ there, in loss per unit of noise variance (per coordinate, parameter units).
        errors: their standard errors; 0 where the value is exact.
        basis: what it was computed on: "quadratic", "synthetic" or "public".
        detail: how, in words.
    """

    steps: int
    probes: npt.NDArray[np.intp]
    weights: Array
    errors: Array
    basis: Basis
    detail: str

    @property
    def influence(self) -> Influence:
        r"""A weight for every step: as measured, and between two measured steps by a straight line in $\log q_t$.

        Raises:
            InputError: a measured weight is not above 0, or the first or the last step was not measured.
        """
        if not (self.probes[0] == 1 and self.probes[-1] == self.steps):
            raise InputError(
                f"probes: got steps {self.probes[0]} to {self.probes[-1]} of {self.steps}; nothing is known outside of them.",
                remedy=f"measure steps 1 and {self.steps} too, or use fit_exponential.",
            )
        if not (self.weights > 0).all():
            worst = int(np.argmin(self.weights))
            raise InputError(
                f"weights: step {self.probes[worst]} has {self.weights[worst]:.3g}, standard error {self.errors[worst]:.2g}; "
                "an influence is above 0 everywhere.",
                remedy="take more repeats, or fit_exponential, which leaves such steps out and says so.",
            )
        logs = np.interp(np.arange(1, self.steps + 1), self.probes, np.log(self.weights))
        weights: Any = tuple(np.exp(logs - logs.max()).tolist())
        return Influence(weights=weights, basis=self.basis, detail=self.detail)

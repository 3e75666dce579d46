"""How much the noise of each step harms the end result: what noise schedules are optimised for.

`lethe.allocate` and `correlate` minimise the harm that it weighs; `lethe.influence` measures one on data.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, SupportsIndex

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from lethe.documents.specification import StoredSpecification
from lethe.errors import InputError
from lethe.run.schedules.allocation import SMALLEST, checked_steps
from lethe.run.schedules.momentum import momentum_weights
from lethe.run.schedules.shapes import Array

_Weights = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1, strict=False)]
Basis = Literal["assumed", "curvature", "quadratic", "synthetic", "public"]


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


class Influence(StoredSpecification):
    r"""By how much one unit of noise variance $\tau_t^2$ (parameter units) at step t raises the expected final loss: $q_t$.

    $$\mathbb{E} f(x_T) \approx \text{what it is without noise} + \sum_t q_t\,\tau_t^2$$

    Only ratios matter: multiplying every $q_t$ by one number changes no schedule. An influence is public: it decides the noise, and
    no certificate covers a schedule that looked at private data. It is therefore never made from private data, which is why every
    basis is one that needs none:

    - "assumed": chosen by hand;
    - "curvature": from known bounds on the loss, such as $\gamma = 1 - \mu/M$;
    - "quadratic": exact for a quadratic with known eigenvalues;
    - "synthetic": measured on generated data;
    - "public": measured on data that anybody may see.

    Args:
        rate: $r > 0$ for $q_t = r^{T-t}$; below 1 the last steps matter most, above 1 the first. Exactly one of `rate` and `weights`.
        weights: $q_1..q_T$, each > 0 and finite.
        basis: where the numbers come from; "assumed" for a guess.
        detail: a few words more on that, for people.
    Raises:
        InputError: both or neither of `rate` and `weights`, or a number out of range.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Section 4. They define $q_t$ as the derivative by $\sigma_t$ and use it as the one by
        $\sigma_t^2$, which is what stands here.
    """

    rate: float | None = Field(default=None, gt=0)
    weights: Annotated[_Weights | None, BeforeValidator(_listed)] = None
    basis: Basis = "assumed"
    detail: str = ""

    @model_validator(mode="after")
    def _one_form(self) -> Influence:
        if (self.rate is None) == (self.weights is None):
            listed = None if self.weights is None else f"{len(self.weights)} numbers"
            raise InputError(
                f"rate: got {self.rate}, and weights: {listed}; exactly one of the two is needed.", remedy="keep rate or weights."
            )
        return self

    @staticmethod
    def of_momentum(rate: float, beta: float, steps: SupportsIndex) -> Influence:
        r"""The influence in the risk bound of debiased momentum (`lethe.train.DebiasedMomentum`), all iterates released.

        Args:
            rate: $\gamma \in (0, 1]$, what a step leaves of the risk: $1 - \mu\lambda$, PL constant times step size.
            beta: of the momentum, in [0, 1).
            steps: $T \ge 1$; weights below what doubles hold are refused.
        Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.8, with the exact weights of its bound.
        """
        weights = tuple(momentum_weights(rate, beta, steps).tolist())
        return Influence(weights=weights, basis="assumed", detail=f"debiased momentum {beta:g}, rate {rate:g}")

    def values(self, steps: SupportsIndex) -> Array:
        """$q_t$ of the first to the last step, shape (steps,), scaled so that the largest is 1."""
        count = checked_steps(steps)
        if self.weights is not None:
            if len(self.weights) != count:
                raise InputError(
                    f"the influence lists {len(self.weights)} weights; {count} steps need {count}.",
                    source="weights",
                    remedy="list one weight for each step, or give a rate.",
                )
            listed = np.asarray(self.weights, dtype=np.float64)
            smallest, largest = float(listed.min()), float(listed.max())
            self._refuse_beyond_doubles(math.log(smallest) - math.log(largest))
            return listed / largest
        assert self.rate is not None  # _one_form has refused the rest
        self._refuse_beyond_doubles(-(count - 1) * abs(math.log(self.rate)))
        # Counted from the end where the influence is largest, so that no power overflows.
        powers = np.arange(count - 1, -1, -1) if self.rate <= 1.0 else -np.arange(count)
        return np.power(self.rate, powers.astype(np.float64))

    def describe(self) -> str:
        """The influence and its basis in one line."""
        if self.weights is None:
            words = f"influence {self.rate:.6g}^(T-t)"
        else:
            factor = math.exp(min(math.log(max(self.weights)) - math.log(min(self.weights)), 700.0))
            words = f"influence of {len(self.weights)} listed steps, the largest {factor:.3g} times the smallest"
        return f"{words} ({self.basis}{f': {self.detail}' if self.detail else ''})"

    def to_document(self) -> dict[str, Any]:
        """Plain data; of rate and weights only the one that was given."""
        form: dict[str, Any] = {"rate": self.rate} if self.weights is None else {"weights": list(self.weights)}
        return form | {"basis": self.basis, "detail": self.detail}

    def _refuse_beyond_doubles(self, log_ratio: float) -> None:
        if log_ratio < math.log(SMALLEST):
            raise InputError(
                f"the smallest influence would be exp({log_ratio:.6g}) of the largest; doubles hold ratios down to {SMALLEST:.3g}.",
                source="rate" if self.weights is None else "weights",
                remedy="take a rate nearer to 1, fewer steps, or weights that differ less.",
            )

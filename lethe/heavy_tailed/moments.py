"""Moment bounds on per-record gradients that have no other bound, and the bias of a mean of clipped gradients.

All of it is public knowledge, stated before the data are seen: measuring it on private data without noise is a release of those data.
Wrong numbers cost accuracy and never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lethe.calculus.domains import outside, require_positive
from lethe.errors import InputError

Kind = Literal["raw", "uniform", "central"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    r"""A bound of order $k$ on per-record gradients $g = \nabla f(w, x)$, $x$ drawn from the distribution of the data.

    "raw": $\sup_w (E\|g\|^k)^{1/k} \le r$. "uniform": $(E\sup_w\|g\|^k)^{1/k} \le r$, which implies it. "central", for each coordinate:
    $\sup_w E|g_j - E g_j|^k \le \gamma$ and $\|E g\| \le \sqrt d\,\gamma^{1/k}$.

    Args:
        order: $k \ge 2$.
        bound: $r > 0$ in loss per parameter; for "central" it is $\gamma^{1/k}$, in the same unit.
        kind: which of the three.
        second: the same of order 2, at most `bound`; None: `bound`, since moments grow with their order.
        half: the same of order $k/2$, for `localised`; None: `bound`.
    Raises:
        InputError: a number out of range, or a lower-order bound above `bound`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Assumptions 1, 2 and 3.
    """

    order: float
    bound: float
    kind: Kind = "raw"
    second: float | None = None
    half: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in ("raw", "uniform", "central"):
            raise outside("kind", self.kind, "raw, uniform or central")
        order, bound = _order(self.order), require_positive("bound", self.bound)
        if not 1e-60 <= bound <= 1e60:
            raise outside("bound", self.bound, "a number in [1e-60, 1e60]; rescale the loss")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "bound", bound)
        for name in ("second", "half"):
            value = getattr(self, name)
            if value is not None and require_positive(name, value) > bound:
                raise InputError(
                    f"{name} = {value!r}; a moment of lower order is at most bound = {bound:g}.",
                    source=f"the arguments {name} and bound",
                    remedy=f"leave {name} out, or lower it to the bound",
                )

    def raw(self, dimension: int) -> float:
        r"""$r_k$. From "central" $2\sqrt d\,\gamma^{1/k}$, by Minkowski's inequality; the paper's Lemma 21 has a 4."""
        return self.bound * (2.0 * math.sqrt(dimension) if self.kind == "central" else 1.0)

    def raw_second(self, dimension: int) -> float:
        """$r_2$, derived as `raw`."""
        second = self.bound if self.second is None else self.second
        return second * (2.0 * math.sqrt(dimension) if self.kind == "central" else 1.0)


def clipping_bias(order: float, bound: float, clip_norm: float) -> float:
    r"""How far clipping to norm C can move a mean whose summands have $E\|z\|^k \le r^k$.

    $$\|E\,\Pi_C(z) - E z\| \le E(\|z\| - C)_+ \le c_k\,\frac{r^k}{C^{k-1}},\qquad c_k = \frac{(k-1)^{k-1}}{k^k}$$

    $c_k$ is the smallest constant with $(u - C)_+ \le c_k u^k/C^{k-1}$ for all $u, C > 0$, 1/4 at $k = 2$, with equality at
    $u = kC/(k-1)$: attained by $\|z\| \in \{0, kC/(k-1)\}$ in one direction. 0 for $C = \infty$.

    For $k \ge 2$, $r > 0$ and $C > 0$; in the unit of r; infinity where it overflows.
    """
    k = _order(order)
    return math.exp((k - 1.0) * math.log1p(-1.0 / k)) / k * _scaled(k, bound, clip_norm)


def printed_clipping_bias(order: float, bound: float, clip_norm: float) -> float:
    """As printed, true and 2.7 to 4 times too large: $r^k/((k-1)C^{k-1})$ (Lemma 6)."""
    return _scaled(_order(order), bound, clip_norm) / (order - 1.0)


def _order(value: object) -> float:
    order = require_positive("order", value)
    if order < 2.0:
        raise outside("order", value, "a finite number >= 2")
    return order


def _scaled(order: float, bound: float, clip_norm: float) -> float:
    """$r^k/C^{k-1}$."""
    size = require_positive("bound", bound)
    if isinstance(clip_norm, float) and clip_norm == math.inf:
        return 0.0
    logarithm = math.log(size) + (order - 1.0) * (math.log(size) - math.log(require_positive("clip_norm", clip_norm)))
    return math.exp(logarithm) if logarithm < 709.0 else math.inf

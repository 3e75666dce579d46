r"""Passes that end at an average of their iterates: each pass is one map with noise at its end.

With $d_0$ the distance of two runs before a pass, iterate k of the pass is at most $d_k \le L_k d_{k-1} + s_k 1\{k = j\}$ apart for a
record in batch j, so the average $\sum_k \omega_k y_k$ is at most $A_0 d_0 + A_j s_j$ apart, where

$$A_k = \sum_{i \ge k} \omega_i \prod_{k < m \le i} L_m = \omega_k + L_{k+1} A_{k+1} \quad (\omega_0 = 0).$$

The run is a noisy iteration over passes with Lipschitz constants $A_0$ and touches $A_j s_j$: the shift engine does the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.rounding import above
from lethe.theorems.shift import engine as shift
from lethe.theorems.shift.inputs import Path, checked_diameter, checked_path
from lethe.theorems.shift.participations import Touches, optimal_mus
from lethe.theorems.shift.scaled import Floats, Scaled
from lethe.theorems.shift.segments import Stretch


def averaged_mus(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, weights: Floats, diameter: ArrayLike | None = None
) -> Floats:
    r"""$\mu_j$ for a record that sits in batch j of every pass, for all j at once.

    Args:
        lipschitz: $L_t \ge 0$, shape (T,), T a multiple of l.
        sensitivity: $s_t \ge 0$, shape (T,), parameter units.
        noise_std: $\tau_t \ge 0$, shape (T,), parameter units; only that of the last step of each pass exists.
        weights: $\omega_1 \dots \omega_\ell$, shape (l,), sum 1.
        diameter: $D_t$, as in `shift.solve`; only that after the last step of each pass is used.

    Returns:
        $\mu_1 \dots \mu_\ell$, rounded up.

    Raises:
        InputError: as `positions.position_mus`.

    Reference: docs/theory.md, "Averages inside a pass".
    """
    passes, touches, bound = as_passes(lipschitz, sensitivity, noise_std, weights, diameter)
    if not (np.isfinite(passes.lipschitz).all() and np.isfinite(touches).all()):
        return np.full(weights.size, np.inf)
    slots, count = weights.size, passes.steps
    nothing = Stretch(product=Scaled.full((touches.size,), 1.0), run=Scaled.full((touches.size,), 0.0))
    laid_out = Touches(time=np.tile(np.arange(count), slots), size=touches.ravel(), gap=nothing, path=np.repeat(np.arange(slots), count))
    return optimal_mus(passes, laid_out, bound)


def averaged_worst(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, weights: Floats, diameter: ArrayLike | None = None
) -> float:
    r"""$\mu$ of a record that may sit anywhere in each pass, another place each time: every pass has its largest touch.

    Args, Raises, Reference: those of `averaged_mus`.
    """
    passes, touches, bound = as_passes(lipschitz, sensitivity, noise_std, weights, diameter)
    if not (np.isfinite(passes.lipschitz).all() and np.isfinite(touches).all()):
        return float("inf")
    return shift.solve(passes.lipschitz, touches.max(axis=0), passes.noise_std, bound).mu


def as_passes(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, weights: Floats, diameter: ArrayLike | None
) -> tuple[Path, Floats, Floats | None]:
    r"""The run over passes, its touches $A_j s_j$ by position, shape (l, E), and the diameters after each pass.

    Args, Raises, Reference: those of `averaged_mus`.
    """
    path = checked_path(lipschitz, sensitivity, noise_std)
    slots = weights.size
    factors, sizes, noises = (values.reshape(-1, slots) for values in path)
    arriving = np.zeros_like(factors)
    with np.errstate(over="ignore", invalid="ignore"):
        following = np.zeros(len(factors))
        for k in range(slots - 1, -1, -1):
            following = arriving[:, k] = weights[k] + following
            following = _product(factors[:, k], following)
        # Two roundings a step of the recursion, one for each weight, and one for the product with the touch.
        raised = 1.0 + (3 * slots + 4) * float(np.finfo(np.float64).eps)
        touches = _product(sizes, arriving * raised).T
        through = _product(following, np.full(len(factors), raised))
    bound = checked_diameter(diameter, path.steps)
    ends = slice(slots - 1, None, slots)
    return Path(through, np.zeros(len(factors)), noises[:, -1]), touches, None if bound is None else bound[ends]


def _product(one: Floats, other: Floats) -> Floats:
    """Exactly 0 where one of them is, even beside infinity; never 0 where neither is."""
    nothing = (one == 0.0) | (other == 0.0)
    return np.where(nothing, 0.0, above(one * other))

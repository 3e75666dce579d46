r"""The position of the record in a pass: which batch it sits in decides how much noise follows each of its touches.

`optimal_shift` takes the worst position or their mixture, noise planners the worst one. L, s and $\tau$ are a step's Lipschitz constant,
sensitivity and noise; a touch is a step whose batch holds the record; $\omega_k$ the weight of iterate $y_k$ in the average.

Runs of T steps in passes over l disjoint batches; a record in batch j is touched at t = j, j + l, j + 2l, ... up to T, where T need not
be a multiple of l and a position j > T is never touched. Every function here takes the same arrays as `shift.solve`, in time order,
with the sensitivity that each step would have for a record in its batch.

**Passes that end at an average of their iterates:** each pass is one map with noise at its end.

With $d_0$ the distance of two runs before a pass, iterate k of the pass is at most $d_k \le L_k d_{k-1} + s_k 1\{k = j\}$ apart for a
record in batch j, so the average $\sum_k \omega_k y_k$ is at most $A_0 d_0 + A_j s_j$ apart, where

$$A_k = \sum_{i \ge k} \omega_i \prod_{k < m \le i} L_m = \omega_k + L_{k+1} A_{k+1} \quad (\omega_0 = 0).$$

The run is a noisy iteration over passes with Lipschitz constants $A_0$ and touches $A_j s_j$: the shift engine does the rest.
"""

from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.rounding import above
from lethe.theorems.shift import engine as shift
from lethe.theorems.shift.engine import Path, checked_batches, checked_diameter, checked_path
from lethe.theorems.shift.participations import Touches, optimal_mus
from lethe.theorems.shift.segments import Floats, Scaled, Stretch
from lethe.theorems.shuffled.passes import Passes


def every_step(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, diameter: ArrayLike | None = None) -> float:
    r"""$\mu$ of a record touched at every step: full batches, or any random batches without credit for the sampling."""
    return shift.solve(lipschitz, sensitivity, noise_std, diameter).mu


def position_mus(
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    noise_std: ArrayLike,
    batches_per_pass: SupportsIndex,
    diameter: ArrayLike | None = None,
) -> Floats:
    r"""$\mu_j$ of the last iterate for a record that sits in batch j of every pass, for all j at once.

    $$\mu_j^2 = \text{the optimal shift of } (L_t,\ s_t 1\{t \equiv j \bmod \ell\},\ \tau_t)_{t \le T}$$

    The exact optimum for each j, in O(T) for all of them. With a diameter, the best start right after a touch; where the bound may
    also bind between touches, because a step expands faster than the diameter, at most 40 more starts common to all positions.
    Any set of starts is sound, and this one is complete unless steps expand or the diameter shrinks between touches.

    Arguments as in `shift.solve`; the sensitivity is what a record of the step's batch has. Each is rounded up; 0 for a position that is
    never touched. Reference: positions are those of Feldman, Mironov, Talwar & Thakurta 2018, arXiv:1808.06651, and Kong & Ribero 2024,
    arXiv:2407.05237; the optimum over shifts is proved in docs/theory.md.
    """
    reached = _reached_mus(lipschitz, sensitivity, noise_std, batches_per_pass, diameter)
    return np.concatenate((reached, np.zeros(checked_batches(batches_per_pass) - reached.size)))


def worst_position(
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    noise_std: ArrayLike,
    batches_per_pass: SupportsIndex,
    diameter: ArrayLike | None = None,
) -> tuple[float, int]:
    r"""Batches in a fixed order: the largest $\mu_j$ and its j in 1..l (the first, if several)."""
    mus = _reached_mus(lipschitz, sensitivity, noise_std, batches_per_pass, diameter)
    worst = int(np.argmax(mus))
    return float(mus[worst]), worst + 1


def shuffled_once(
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    noise_std: ArrayLike,
    batches_per_pass: SupportsIndex,
    diameter: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    r"""One secret uniform order of the records, kept for all passes: the mixture of the $\mu_j$ with equal weights,
    $\delta(\varepsilon) \le \frac1\ell \sum_{j=1}^{\ell} \delta_{\mu_j}(\varepsilon)$, by joint convexity of the hockey-stick divergence.

    The bound needs the order to be secret. It holds as well for a record that joins one of l batches chosen uniformly and keeps it (balls
    in bins): only the law of the record's own position is used. `mus` and weights have shape (l,), or (T + 1,) where T < l: the positions
    that no step reaches stand together at the end.
    """
    mus = _reached_mus(lipschitz, sensitivity, noise_std, batches_per_pass, diameter)
    size = checked_batches(batches_per_pass)
    weights = np.full(mus.size, 1.0 / size)
    if mus.size == size:
        return mus, weights
    return np.append(mus, 0.0), np.append(weights, (size - mus.size) / size)


def _reached_mus(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, batches_per_pass: SupportsIndex, diameter: ArrayLike | None
) -> Floats:
    """The mus of the positions that some step reaches, the first min(l, T): a pass may be far longer than the run."""
    path = checked_path(lipschitz, sensitivity, noise_std)
    size = min(checked_batches(batches_per_pass), path.steps)
    bound = checked_diameter(diameter, path.steps)
    if size == 1:
        return np.array([shift.solve(*path, bound).mu])
    return optimal_mus(path, _by_position(path, size), bound)


def _by_position(path: Path, size: int) -> Touches:
    """Position by position, then in time."""
    passes = Passes.of(path, size)
    real = passes.real
    position, turn = np.nonzero(real)
    gap = passes.until_next_touch().map(lambda a: a[real])
    return Touches(time=turn * size + position, size=passes.sensitivity[real], gap=gap, path=position)


def averaged_mus(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, weights: Floats, diameter: ArrayLike | None = None
) -> Floats:
    r"""$\mu_1 \dots \mu_\ell$ for a record that sits in batch j of every pass, for all j at once, rounded up.

    As `position_mus`, with T a multiple of l; of noise and diameter only those after the last step of each pass count. Weights $\omega_j$,
    of sum 1, have shape (l,). Reference: docs/theory.md, "Averages inside a pass".
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

    Shapes as `averaged_mus`.
    """
    passes, touches, bound = as_passes(lipschitz, sensitivity, noise_std, weights, diameter)
    if not (np.isfinite(passes.lipschitz).all() and np.isfinite(touches).all()):
        return float("inf")
    return shift.solve(passes.lipschitz, touches.max(axis=0), passes.noise_std, bound).mu


def as_passes(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, weights: Floats, diameter: ArrayLike | None
) -> tuple[Path, Floats, Floats | None]:
    """The run over passes, its touches $A_j s_j$ by position, shape (l, E), and the diameters after each pass."""
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


def _product(first: Floats, second: Floats) -> Floats:
    """Exactly 0 where one of them is, even beside infinity; never 0 where neither is."""
    nothing = (first == 0.0) | (second == 0.0)
    return np.where(nothing, 0.0, above(first * second))

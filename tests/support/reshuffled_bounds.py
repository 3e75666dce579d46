"""What a fresh order in every pass is bounded by besides: parts and relatives of `reshuffled`, to compare it with."""

from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.theorems.shift import engine as shift
from lethe.theorems.shift.engine import checked_batches, checked_diameter, checked_path
from lethe.theorems.shift.segments import Floats
from lethe.theorems.shuffled.passes import Passes, TouchCosts
from lethe.theorems.shuffled.reshuffled import LastTouch, touch_law


def worst_path(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, batches_per_pass: SupportsIndex, diameter: ArrayLike | None = None
) -> float:
    r"""$\mu$ of a record that may sit anywhere in each pass, another place each time: a bound for every order of every pass.

    The optimal shift of one virtual touch a pass, at its last step e, of size $\max_j s_j \prod_{j<k\le e} L_k$. Proof in
    docs/theory.md: with the virtual run's payments, cut where the shift is 0, the true shift never exceeds the virtual one at the end
    of a pass, so it is paid too, for no more.

    Args, Raises, Reference: those of `position_mus`.

    Returns:
        $\mu$, rounded up.
    """
    path = checked_path(lipschitz, sensitivity, noise_std)
    size = min(checked_batches(batches_per_pass), path.steps)
    bound = checked_diameter(diameter, path.steps)
    arriving = Passes.of(path, size).largest_arrivals()
    if not np.isfinite(arriving).all():
        return float("inf")
    virtual = np.zeros(path.steps)
    virtual[np.minimum(np.arange(1, arriving.size + 1) * size, path.steps) - 1] = arriving
    return shift.solve(path.lipschitz, virtual, path.noise_std, bound).mu


def touch_by_touch(
    lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, batches_per_pass: SupportsIndex
) -> tuple[Floats, Floats]:
    r"""The law of $\sum_e c_e(j_e, j_{e+1})$ alone, by dynamic programming: each touch paid from the noise up to the next.

    Sums are rounded up by about 1 % or less. Positions are exact up to 96 batches a pass; beyond, they lie in 96 buckets that are
    fine at both ends of the pass, where the costly pairs are.

    Args, Returns, Raises: those of `reshuffled`, which joins it with a second bound; mass of at most $10^{-18}$ is moved up to inf.

    Reference: Kong & Ribero 2024, arXiv:2407.05237, for the cost of one touch; the law is proved in docs/theory.md.
    """
    path = checked_path(lipschitz, sensitivity, noise_std)
    passes = Passes.of(path, checked_batches(batches_per_pass))
    positions = len(passes.sensitivity)
    no_bound = LastTouch(in_full_pass=np.full(positions, np.inf), in_partial_pass=np.full(passes.last_size % positions, np.inf))
    return touch_law(path.steps, TouchCosts.of(passes), no_bound)

r"""A fresh secret order in every pass: the law of $\mu^2$ over the record's positions.

`optimal_shift` calls it for the design `shuffled`. A touch is a step whose batch holds the record; R is what it has grown to by the next
one, V the noise that arrived until then, L and s a step's Lipschitz constant and sensitivity.

Given the positions $j_1, \dots, j_E$ there are two bounds on $\mu^2$, and the smaller one counts. Paying each touch from the noise up
to the next one costs $\sum_e c_e(j_e, j_{e+1})$, $c = R^2/V$ of the stretch between the two touches; the positions are independent and
uniform, so (current position, sum so far) is a Markov chain, whose law is computed with every rounding upward. And whatever the
earlier positions, $\mu^2$ is at most what `LastTouch` says of $j_E$: there, touches are pooled, which the sum cannot do.

**The last touch.** Wherever the record sat in the earlier passes, the shift at the end of each is at most that of a run with one virtual
touch at the last step of each pass, of size $\max_j s_j \prod_{j<k\le e} L_k$. So the optimum of the run with virtual touches before and
the true touch at j in the last pass bounds every path that ends with j, and the privacy profile is the mean over the uniform j alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.rounding import square_above
from lethe.theorems.shift.engine import Path, checked_batches, checked_diameter, checked_path
from lethe.theorems.shift.participations import Touches, optimal_mus
from lethe.theorems.shift.pooling import outward
from lethe.theorems.shift.segments import Floats, Scaled, Stretch
from lethe.theorems.shuffled.laws import SquaredLaw, grid_share, grid_step, tail_law
from lethe.theorems.shuffled.passes import Passes, TouchCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTouch:
    """mu by position of the last touch, rounded up."""

    in_full_pass: Floats
    """For a last touch in the last full pass; shape (l,). All 0 if no pass is full: the record was never touched."""
    in_partial_pass: Floats
    """For a touch in the r < l steps after it; shape (r,); empty if there are none."""

    @classmethod
    def of(cls, run: Path, passes: Passes, bound: Floats | None) -> LastTouch:
        """The mus of both kinds of end of a run: after a full pass, and within one.

        The bound on the distance after each step has shape (T,), in parameter units; None: none.
        """
        size, count = passes.sensitivity.shape
        partial = passes.last_size % size
        full = count if partial == 0 else count - 1
        in_full, in_partial = np.zeros(size), np.zeros(0)
        if full > 0:
            tail = passes.after.map(lambda a: a[:, full - 1])
            if partial > 0:
                tail = tail.join(passes.before.map(lambda a: a[partial, full : full + 1]))
            in_full = _mus(run, passes, full - 1, tail, bound)
        if partial > 0:
            in_partial = _mus(run, passes, full, passes.after.map(lambda a: a[:partial, full]), bound)
        return cls(in_full_pass=in_full, in_partial_pass=in_partial)

    def mixture(self) -> tuple[Floats, Floats]:
        """The mus and their probabilities."""
        size, touched = self.in_full_pass.size, self.in_partial_pass.size
        if touched == 0:
            return self.in_full_pass, np.full(size, 1.0 / size)
        missed = np.full(size, (size - touched) / size / size)
        return np.concatenate((self.in_full_pass, self.in_partial_pass)), np.concatenate((missed, np.full(touched, 1.0 / size)))


def _mus(run: Path, passes: Passes, last: int, tail: Stretch, bound: Floats | None) -> Floats:
    """Virtual touches at the ends of the passes before `last`, a true touch at each position of it, `tail` after that."""
    size, positions = passes.sensitivity.shape[0], tail.run.mantissa.size
    virtual = passes.largest_arrivals()[:last]
    if not np.isfinite(virtual).all():
        return np.full(positions, np.inf)

    def rows(*columns: NDArray[Any]) -> NDArray[Any]:
        """One row a position, flat: what all have in common, then each one's own."""
        return np.column_stack([np.broadcast_to(column, (positions, *column.shape[-1:])) for column in columns]).ravel()

    def gaps(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        # After a virtual touch comes the next pass but for its last step; after the last of them, what is before the true touch.
        last_column = before[:positions, last : last + 1] if last > 0 else before[:positions, :0]
        return rows(before[-1, 1:last] if last > 0 else before[-1, :0], last_column, after[:, np.newaxis])

    touches = Touches(
        time=rows(np.arange(1, last + 1) * size - 1, (last * size + np.arange(positions))[:, np.newaxis]),
        size=rows(virtual, passes.sensitivity[:positions, last : last + 1]),
        gap=Stretch(
            product=Scaled(
                mantissa=gaps(passes.before.product.mantissa, tail.product.mantissa),
                exponent=gaps(passes.before.product.exponent, tail.product.exponent),
            ),
            run=Scaled(
                mantissa=gaps(passes.before.run.mantissa, tail.run.mantissa),
                exponent=gaps(passes.before.run.exponent, tail.run.exponent),
            ),
        ),
        path=np.repeat(np.arange(positions), last + 1),
    )
    return optimal_mus(run, touches, bound)


# The law of the sum is worth its time where its mean is below that of the bound by the last touch: up to this many standard errors
# of a sum of many terms above it where positions are exact, and clearly below it where they are rounded.
_STANDARD_ERRORS = 0.5
_CLEARLY = 0.9

# A grid whose step is a larger share of the mean cost loses more than Chernoff's bound does.
_TOO_COARSE = 0.08


def reshuffled(
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    noise_std: ArrayLike,
    batches_per_pass: SupportsIndex,
    diameter: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    r"""A fresh secret uniform order in every pass: a mixture of $\mu$s whose privacy profile bounds that of the last iterate.

    $$\delta(\varepsilon) \le \mathbb{E}\,\delta_\mu(\varepsilon), \qquad
    \mu^2 = \min\Big(\sum_e c_e(j_e, j_{e+1}),\ \mu_{\text{last}}^2(j_E)\Big)$$

    over independent uniform positions $j_e$; by joint convexity of the hockey-stick divergence, if the orders are secret. The last touch
    decides alone, in O(T), in long runs where no step expands; the sum decides where steps expand. A last pass of r < l steps touches the
    record with probability r / l. The diameter enters through the last touch. `mus` ascend, of the shape of the weights, whose sum is 1;
    inf is possible, where noise may be missing.
    """
    path = checked_path(lipschitz, sensitivity, noise_std)
    size = checked_batches(batches_per_pass)
    if size > path.steps:  # a pass that is longer than the run: what no step reaches stands together, at 0
        reached = LastTouch.of(path, Passes.of(path, path.steps), checked_diameter(diameter, path.steps)).in_full_pass
        weights = np.full(path.steps, 1.0 / size)
        return _sorted(np.append(reached, 0.0), np.append(weights, (size - path.steps) / size))
    passes = Passes.of(path, size)
    last = LastTouch.of(path, passes, checked_diameter(diameter, path.steps))
    mus, weights = last.mixture()
    costs = TouchCosts.of(passes)
    if costs.full == 0:
        return _sorted(mus, weights)
    rounded = costs.first.size < size
    limit = _CLEARLY if rounded else 1.0 + _STANDARD_ERRORS / np.sqrt(costs.full)
    if not costs.full * costs.mean(square_above(mus).max()) < limit * float(weights @ square_above(mus)):
        return _sorted(mus, weights)
    if grid_share(costs.full + 1, costs.weights.size) > _TOO_COARSE and costs.payable:
        values, weights = tail_law(costs, float(square_above(mus).max()))
        return _sorted(outward(values, path.steps), weights)
    return touch_law(path.steps, costs, last)


def touch_law(steps: int, costs: TouchCosts, last: LastTouch) -> tuple[Floats, Floats]:
    """The mixture of the sums of costs, each at most what the last touch allows."""
    moves = costs.full + 1
    # A position beyond the last step of a partial pass has probability 0 there.
    partial = np.append(last.in_partial_pass, np.zeros(last.in_full_pass.size - last.in_partial_pass.size))
    caps, partial_caps = costs.worst_of_bucket(square_above(last.in_full_pass)), costs.worst_of_bucket(square_above(partial))
    ceiling = float(max(caps.max(), partial_caps.max()))
    step = grid_step(costs.mean(ceiling), moves, costs.weights.size)

    def start(weights: Floats) -> SquaredLaw:
        return SquaredLaw.start(weights, step=step, ceiling=ceiling, moves=moves)

    ends: list[tuple[Floats, Floats]] = []
    if costs.full == 0:
        ends.append((np.zeros(1), np.array([1.0 - costs.partial.sum()])))
        touched = start(costs.partial)
    else:
        law = start(costs.weights)
        for matrix in costs.matrices():
            law = law.moved(matrix, costs.weights)
        if costs.partial_size == 0:
            ends.append(law.ended(costs.to_the_end(costs.full - 1), caps))
            touched = None
        else:
            values, weights = law.ended(costs.between(costs.full - 1, np.array([costs.partial_size]))[:, 0], caps)
            ends.append((values, weights * (1.0 - costs.partial.sum())))
            touched = law.moved(costs.between(costs.full - 1, costs.first), costs.partial)
    if touched is not None:
        ends.append(touched.ended(costs.to_the_end(costs.full), partial_caps))
    squared = np.concatenate([values for values, _ in ends])
    weights = np.concatenate([weights for _, weights in ends])
    # Each weight is a sum over buckets and moves; what rounding may have taken from it is given back.
    return _sorted(outward(squared, steps), weights * (1.0 + moves * (costs.weights.size + 4) * float(np.finfo(np.float64).eps)))


def _sorted(mus: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Ascending mus, each once. What rounding left above 1 in all the smallest lose; what it left missing the largest get."""
    if not (np.isfinite(weights).all() and (mus >= 0.0).all()):
        return np.array([np.inf]), np.ones(1)
    distinct, which = np.unique(mus, return_inverse=True)
    together = np.bincount(which, weights)
    together[-1] += max(1.0 - float(together.sum()), 0.0)
    above = np.minimum(np.cumsum(together[::-1])[::-1], 1.0)
    mass = above - np.append(above[1:], 0.0)
    return distinct[mass > 0.0], mass[mass > 0.0]

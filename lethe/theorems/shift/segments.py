r"""Stretches of a run, and how two neighbours become one.

With $w_t = \prod_{j > t} L_j$ taken up to the stretch's own last step, a stretch is three numbers: the product of its Lipschitz
constants, its rise $\sum w_t s_t$ (what its touches amount to at its end) and its run $\sum w_t^2 \tau_t^2$ (the noise that has
arrived there). Joining a left and a right stretch is associative:

$$(P, R, V) \circ (P', R', V') = (P P',\; P' R + R',\; P'^2 V + V')$$

so prefix sums, suffix sums and the greatest convex minorant all use the one operation `join`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.theorems.shift.scaled import Floats, Rearrangement, Scaled

# Below this many steps one loop is cheaper than splitting the scan into blocks.
_DIRECT_SCAN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Untouched steps: the product of their Lipschitz constants and their run."""

    product: Scaled
    run: Scaled

    def join(self, right: Stretch) -> Stretch:
        """This stretch followed by `right`, elementwise."""
        square = right.product * right.product
        return Stretch(product=self.product * right.product, run=square * self.run + right.run)

    def map(self, function: Rearrangement) -> Stretch:
        """Apply one rearrangement to every array."""
        return Stretch(product=self.product.map(function), run=self.run.map(function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Stretches with a rise."""

    product: Scaled
    rise: Scaled
    run: Scaled

    def join(self, right: Segments) -> Segments:
        """This segment followed by `right`, elementwise."""
        square = right.product * right.product
        return Segments(
            product=self.product * right.product,
            rise=right.product * self.rise + right.rise,
            run=square * self.run + right.run,
        )

    def then(self, right: Stretch) -> Segments:
        """This segment followed by untouched steps."""
        square = right.product * right.product
        return Segments(product=self.product * right.product, rise=right.product * self.rise, run=square * self.run + right.run)

    def pools_with(self, right: Segments) -> NDArray[np.bool_]:
        r"""Whether the vertex between this segment and `right` is no vertex of the convex minorant.

        $$\frac{R}{V P'} \ge \frac{R'}{V'}, \quad\text{written}\quad R V' \ge R' V P'$$

        Cross-multiplied, the corner cases come out right by themselves: a segment without rise joins what is left of it, one
        without noise joins what is right of it, and what lies before a zero Lipschitz constant is absorbed and forgotten.
        """
        return (self.rise * right.run).at_least(right.rise * self.run * right.product)

    def map(self, function: Rearrangement) -> Segments:
        """Apply one rearrangement to every array."""
        return Segments(product=self.product.map(function), rise=self.rise.map(function), run=self.run.map(function))


def single_steps(lipschitz: Floats, noise_std: Floats) -> Stretch:
    """One stretch a step; noise is squared after its exponent is split off, so no noise is too small or too large to be squared."""
    noise = Scaled.of(noise_std)
    return Stretch(product=Scaled.of(lipschitz), run=noise * noise)


def exclusive_prefix(steps: Stretch) -> Stretch:
    """Along the first of two axes, at index i the join of the steps 0..i-1 (the empty stretch at 0)."""
    return _exclusive(steps, Stretch.join)


def exclusive_suffix(steps: Stretch) -> Stretch:
    """Along the first of two axes, at index i the join of the steps after i (the empty stretch at the last)."""
    return _exclusive(steps.map(lambda a: a[::-1]), lambda later, earlier: earlier.join(later)).map(lambda a: a[::-1])


def _empty(shape: tuple[int, ...]) -> Stretch:
    return Stretch(product=Scaled.full(shape, 1.0), run=Scaled.full(shape, 0.0))


def _exclusive(steps: Stretch, join: Callable[[Stretch, Stretch], Stretch]) -> Stretch:
    shape = steps.run.mantissa.shape
    length, rest = shape[0], shape[1:]
    if length <= _DIRECT_SCAN:
        result = _empty(shape)
        total = _empty(rest)
        for i in range(1, length):
            total = join(total, steps.map(lambda a, i=i: a[i - 1]))
            _write(result, i, total)
        return result
    width = int(np.ceil(np.sqrt(length)))
    blocks = -(-length // width)
    padded = _empty((blocks * width, *rest))
    _write(padded, slice(0, length), steps)
    inside = padded.map(lambda a: np.ascontiguousarray(np.swapaxes(a.reshape(blocks, width, *rest), 0, 1)))
    scanned = _exclusive(inside, join)
    totals = join(scanned.map(lambda a: a[-1]), inside.map(lambda a: a[-1]))
    carried = _exclusive(totals, join).map(lambda a: a[np.newaxis])
    return join(carried, scanned).map(lambda a: np.swapaxes(a, 0, 1).reshape(blocks * width, *rest)[:length])


def _write(target: Stretch, index: int | slice, source: Stretch) -> None:
    for into, values in ((target.product, source.product), (target.run, source.run)):
        into.mantissa[index] = values.mantissa
        into.exponent[index] = values.exponent

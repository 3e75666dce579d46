r"""How far apart two iterates are after one step of a mean of convex losses whose gradients are Hölder continuous, or only bounded.

`path` uses it for convex losses. f is the mean loss of a batch, $\lambda$ the step size, G bounds a gradient, and $\|\nabla f(x) - \nabla
f(y)\| \le H\|x - y\|^p$.

With $\Delta = \nabla f(x) - \nabla f(y)$, $z = \|x - y\|$ and $w = \|\Delta\| \le \min(Hz^p, 2G)$, $\langle x - y, \Delta\rangle \ge
\frac{2p}{1+p}\,w\,(w/H)^{1/p}$ (docs/theory.md, Theorem 8a), so with $u = (w/H)^{1/p}$

$$\|x - y - \lambda\Delta\|^2 \le z^2 + \max_{u \le z,\ Hu^p \le 2G}\lambda Hu^p\big(\lambda Hu^p - \tfrac{4p}{1+p}u\big).$$

The maximum grows up to $u^* = (\lambda H/2)^{1/(1-p)}$, where it is $4\frac{1-p}{1+p}u^{*2}$. At $p = 0$ it is
$\min(\lambda H, 2\lambda G)^2$.
"""

from math import hypot, pow, sqrt

import numpy as np

from lethe.theorems.shift.segments import Floats

_UP = 1.0 + 2.0**-48
# Of a power of exponent e: its base is off by some eps, and the exponent itself by some eps of a logarithm below 746.
_POWER_ERROR = 4.0 * float(np.finfo(np.float64).eps)


class ConvexGrowth:
    r"""The growth of T steps, from `growth` $\lambda_tH$ and `flat` $2\lambda_tG$, both of shape (T,), and `exponent` $0 \le p < 1$."""

    def __init__(self, growth: Floats, flat: Floats, exponent: float) -> None:
        self._exponent, self._growth = exponent, growth
        self._least = 4.0 * exponent / (1.0 + exponent) * (2.0 - _UP)
        if exponent == 0.0:
            rises_to, largest = np.zeros(growth.shape), np.minimum(growth, flat)
        else:
            with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
                turn, turn_above = _power(growth / 2.0, 1.0 / (1.0 - exponent))
                bounded = np.where(growth == 0.0, 0.0, _power(flat / growth, 1.0 / exponent)[1])
                rises_to = np.minimum(turn, bounded)
                at_turn = 2.0 * sqrt((1.0 - exponent) / (1.0 + exponent)) * turn_above
                largest = np.minimum(np.where(bounded < turn, self._root(growth, bounded), at_turn), flat)
        self._rises_to, self._largest = rises_to, largest * _UP
        self._by_step: list[tuple[float, float, float]] = np.stack((growth, rises_to, self._largest), axis=1).tolist()

    def apart(self, step: int, distance: float) -> float:
        """The largest distance after a step that begins at `distance`, rounded up; 0 at 0: in one point there is one gradient."""
        if distance == 0.0:
            return 0.0
        growth, rises_to, largest = self._by_step[step]
        if distance < rises_to:
            moved = growth * pow(distance, self._exponent) * _UP
            largest = min(largest, sqrt(moved) * sqrt(max(moved - self._least * distance, 0.0)) * _UP)
        return hypot(distance, largest) * _UP

    def tangents(self, distances: Floats) -> tuple[Floats, Floats]:
        """Slopes at distances > 0, one a step, and the heights at 0 of the tangents: lines to find a path by, and no bounds."""
        rising = distances < self._rises_to
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            grown = np.hypot(distances, np.where(rising, self._root(self._growth, distances), self._largest))
            moved = self._growth * distances**self._exponent
            slopes = (distances + np.where(rising, self._exponent * moved * (moved / distances - 2.0), 0.0)) / grown
        return slopes, np.maximum(grown - slopes * distances, 0.0)

    def _root(self, growth: Floats, distances: Floats) -> Floats:
        moved = growth * distances**self._exponent * _UP
        return np.sqrt(moved) * np.sqrt(np.maximum(moved - self._least * distances, 0.0))


def _power(base: Floats, exponent: float) -> tuple[Floats, Floats]:
    """A power of numbers that are off by a rounding or two, rounded down and rounded up."""
    value, error = base**exponent, min(0.5, _POWER_ERROR * (exponent + 800.0))
    return value * (1.0 - error), value * (1.0 + error) + 1e-300

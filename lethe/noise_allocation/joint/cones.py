r"""Positive definite 2 x 2 matrices, many at once: the cone $rN \ge b^2$, with Nesterov and Todd's scaling.

`interior` keeps its slacks and multipliers in such columns: r bounds the cost of one gap between two touches, N its noise, b what is paid
there.

A matrix $\begin{pmatrix} r & b \\ b & N \end{pmatrix}$ is one column (r, N, b) of an array of shape (3, count), and the inner product
is that of matrices, $r r' + N N' + 2 b b'$. For a primal S and a dual V, both positive definite, there is one $X$ with $X V X = S$, and
with $X = G G^\top$ the scaled point $\Lambda = G^\top V G = G^{-1} S G^{-\top}$. All formulas are free of the units of r and N.

Reference: Nesterov & Todd 1998, "Primal-dual interior-point methods for self-scaled cones".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lethe.run.schedules.shapes import Array


def determinant(a: Array) -> Array:
    """The determinant of each matrix."""
    return a[0] * a[1] - a[2] * a[2]


def _rates(a: Array, change: Array) -> Array:
    """1 over the longest step of each cone; at most 0 if there is none."""
    square, slope, start = determinant(change), 0.5 * (a[0] * change[1] + a[1] * change[0]) - a[2] * change[2], determinant(a)
    inside = slope * slope - square * start
    return np.where(inside >= 0.0, (np.sqrt(np.maximum(inside, 0.0)) - slope) / start, 0.0)


class Point(NamedTuple):
    """Slacks, or their multipliers, or a change of either; a cone is a column (r, N, b)."""

    above: Array
    r"""$w - f$."""
    left: Array
    r"""z."""
    spare: Array
    r"""$1 - \sum r$ of each chain; its multiplier is $\lambda$."""
    cones: Array

    def moved(self, step: float, change: Point) -> Point:
        """This point and `step` times the change."""
        return Point(*(coordinates + step * direction for coordinates, direction in zip(self, change, strict=True)))

    def scaled(self, factor: float) -> Point:
        """Everything times a factor."""
        return Point(*(factor * part for part in self))

    def inverse(self) -> Point:
        """The point at which all products with this one are 1."""
        cones = np.stack([self.cones[1], self.cones[0], -self.cones[2]]) / determinant(self.cones)
        return Point(above=1.0 / self.above, left=1.0 / self.left, spare=1.0 / self.spare, cones=cones)

    def times(self, point: Point) -> float:
        """The inner product."""
        a, b = self.cones, point.cones
        flat = self.above @ point.above + self.left @ point.left + self.spare @ point.spare
        return float(flat + np.sum(a[0] * b[0] + a[1] * b[1] + 2.0 * a[2] * b[2]))

    def longest(self, change: Point) -> float:
        """The longest step along a change that stays inside; inf if every step does."""
        flat = (-change.above / self.above, -change.left / self.left, -change.spare / self.spare)
        worst = max(float(np.max(part, initial=0.0)) for part in (*flat, _rates(self.cones, change.cones)))
        return 1.0 / worst if worst > 0.0 else np.inf

    def inside(self) -> bool:
        """Whether all is finite and strictly inside."""
        flat = np.concatenate([self.above, self.left, self.spare, self.cones[0], self.cones[1], determinant(self.cones)])
        return bool(np.all(np.isfinite(flat)) and np.all(flat > 0.0))


class Scaling:
    """The scaling of a primal and a dual point."""

    def __init__(self, primal: Array, dual: Array) -> None:
        a, b = np.sqrt(determinant(primal)), np.sqrt(determinant(dual))
        # The geometric mean of S and V^-1, whose determinant is a / b.
        total = primal / a + np.stack([dual[1], dual[0], -dual[2]]) / b
        x, z, y = total * np.sqrt(a / b / determinant(total))
        self._delta = a / b
        self._z, self._y = z, y
        self._corner, self._above, self._below = np.sqrt(self._delta / z), y / np.sqrt(z), np.sqrt(z)
        # X V X = S on (N, b) alone, after r is eliminated: the inverse of a block of the map V -> X V X.
        self.noise_noise = (x * z + y * y) / (z * z * self._delta)
        self.noise_paid = -2.0 * y / (z * self._delta)
        self.paid_paid = 2.0 / self._delta
        self.slope_noise = (y / z) ** 2
        self.slope_paid = -2.0 * y / z
        self.stiffness = (self._delta / z) ** 2
        self._middle = self._dual(dual)

    def correction(self, primal: Array, dual: Array) -> Array:
        r"""$G M G^\top$ with $\Lambda \circ M = (G^{-1} \dot S G^{-\top}) \circ (G^\top \dot V G)$, for Mehrotra's second-order term."""
        a, b = _halves(self._primal(primal)), _halves(self._dual(dual))
        c = _halves(self._middle)
        first = np.sum(a * b, axis=0)
        rest = a[0] * b[1:] + b[0] * a[1:]
        mean = (c[0] * first - np.sum(c[1:] * rest, axis=0)) / determinant(self._middle)
        rest = (rest - mean * c[1:]) / c[0]
        m = np.stack([mean + rest[0], mean - rest[0], rest[1]])
        p, c_, d = self._corner, self._above, self._below
        return np.stack([p * p * m[0] + 2.0 * p * c_ * m[2] + c_ * c_ * m[1], d * d * m[1], d * (p * m[2] + c_ * m[1])])

    def _primal(self, m: Array) -> Array:
        p, c, d = self._corner, self._above, self._below
        ratio = c / d
        return np.stack([(m[0] - 2.0 * ratio * m[2] + ratio**2 * m[1]) / (p * p), m[1] / (d * d), (m[2] - ratio * m[1]) / (p * d)])

    def _dual(self, m: Array) -> Array:
        p, c, d = self._corner, self._above, self._below
        return np.stack([p * p * m[0], c * c * m[0] + 2.0 * c * d * m[2] + d * d * m[1], p * (c * m[0] + d * m[2])])


def _halves(m: Array) -> Array:
    """The mean of the eigenvalues, and the traceless rest."""
    return np.stack([0.5 * (m[0] + m[1]), 0.5 * (m[0] - m[1]), m[2]])

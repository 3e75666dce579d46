r"""The minimiser of a regularised risk to a certified accuracy: Newton's method, and accelerated descent where that falls short.

Objective and output perturbation call `minimiser`: their proofs need the gradient norm at what is released to be below a tolerance, which
this certifies. W are the weights (D features, k scores), $u_i$ a row, $l_i''$ the curvature of its loss, $\lambda$ the ridge, m a sample of
rows.

Where W is small the Hessian is factored. Where it is not,

$$H = \frac1n\sum_i u_iu_i^\top\otimes l_i'' + \lambda I$$

takes $n(Dk)^2$ operations to form and only $4nDk$ to multiply by. Conjugate gradients solve $HS = \nabla F$ in the metric of

$$P = C\otimes A + \lambda I,\qquad C = \frac1m\sum_iu_iu_i^\top,\quad A = \frac1n\sum_il_i'',$$

whose inverse is a division in the eigenvectors of C and A. H is P for records whose curvatures do not depend on their rows.

Steps need not be exact: in memory, products are in single precision where $\lambda$ stands out from its rounding. The gradient, on which
the accuracy rests, is in double precision always.

Reference: Nocedal, Wright 2006, "Numerical optimization", Algorithm 7.1 and Theorem 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from lethe.calculus.rounding import MOST_COUNT, count_above
from lethe.errors import LetheError
from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.objective import MemoryRecords, Objective
from lethe.run.losses.curvatures import Floats

# From the weights, the gradient and the accuracy that is wanted, relative to the gradient's length.
Step = Callable[[Array, Array, float], Array]

_STEPS, _HALVINGS, _PRODUCTS = 100, 30, 300
_MOST_AXES = 2_000  # eigenvectors take seconds up to here
_SINGLE = 1e-6  # of the largest curvature: a ridge that stands out from the rounding of single precision


def minimiser(objective: Objective, tolerance: float) -> Array:
    r"""A point $\tilde W$ with $\|\nabla F(\tilde W)\| \le \tau$, so that $\|\tilde W - W^*\| \le \tau/\lambda$ for the minimiser $W^*$.

    The same data, the same answer: nothing is random. Newton's method is tried first. If it falls short, accelerated descent starts at the
    best point found, whose gradient is no longer than the one at 0, and arrives after
    $2\sqrt\kappa\,\log(\sqrt2\,\kappa\,\|\nabla F(0)\|/\tau)$ steps, $\kappa = (\beta + \lambda)/\lambda$, whatever the data:
    $F(w_k) - F^* \le (1 - \kappa^{-1/2})^k(\beta+\lambda)\|w_0 - w^*\|^2$ (Nesterov, Lectures on convex optimization, 2018, 2.2.3),
    $\|w_0 - w^*\| \le \|\nabla F(w_0)\|/\lambda$, and $\|\nabla F\|^2 \le 2(\beta+\lambda)(F - F^*)$.

    A LetheError says that rounding alone kept the gradient above the tolerance; nothing has been released.
    """
    zero = np.zeros(objective.shape)
    at_zero = _length(objective.value_and_gradient(zero)[1])
    near = newton(objective, tolerance)
    length = _length(objective.value_and_gradient(near)[1])
    if length <= tolerance:
        return near
    return _accelerated(objective, near if length < at_zero else zero, min(length, at_zero), tolerance)


def newton(objective: Objective, tolerance: float) -> Array:
    r"""Weights with $\|\nabla F\| \le \tau$, shape (D, k), or as near to it as the method came; nothing is random."""
    weights = np.zeros(objective.shape)
    value, gradient = objective.value_and_gradient(weights)
    length = first = _length(gradient)
    step: Step | None = None
    for _ in range(_STEPS):
        if length <= tolerance:
            break
        step = step or (_factored(objective) if objective.factored else _ConjugateGradients(objective))
        # Looser far away, where the quadratic is not the risk; never tighter than the tolerance asks for.
        accuracy = max(min(0.1, math.sqrt(length / first)), 0.3 * tolerance / length)
        try:
            direction = step(weights, gradient, accuracy)
        except linalg.LinAlgError:  # a regularisation below the rounding of the Hessian
            break
        slope = float(np.vdot(direction, gradient))
        if not slope > 0.0:
            break
        size = 1.0
        for _ in range(_HALVINGS):
            trial = weights - size * direction
            trial_value, trial_gradient = objective.value_and_gradient(trial)
            trial_length = _length(trial_gradient)
            # Near the end values agree to rounding, and a shorter gradient is what counts.
            if trial_value <= value - 0.25 * size * slope or trial_length < 0.5 * length:
                break
            size *= 0.5
        else:
            break
        weights, value, gradient, length = trial, trial_value, trial_gradient, trial_length
    return weights


def most_steps(condition: float, gradient: float, tolerance: float) -> int:
    r"""The bound of `minimiser` on the steps of accelerated descent, plus one; from $\kappa$, $\|\nabla F(0)\|$ and $\tau$."""
    steps = 2.0 * math.sqrt(condition) * math.log(max(math.sqrt(2.0) * condition * gradient / tolerance, 1.0))
    return int(count_above(steps, MOST_COUNT)) + 1


def _accelerated(objective: Objective, start: Array, gradient_length: float, tolerance: float) -> Array:
    """Nesterov's accelerated descent, whose number of steps is bounded, so that it arrives where Newton's method does not."""
    smoothness = objective.loss.smoothness + objective.regularisation
    condition = smoothness / objective.regularisation
    momentum = (math.sqrt(condition) - 1.0) / (math.sqrt(condition) + 1.0)
    current, ahead = start, start
    for _ in range(most_steps(condition, gradient_length, tolerance)):
        updated = ahead - objective.value_and_gradient(ahead)[1] / smoothness
        current, ahead = updated, updated + momentum * (updated - current)
        if _length(objective.value_and_gradient(current)[1]) <= tolerance:
            return current
    raise LetheError(
        f"the minimiser was not found to a gradient of {tolerance:g}: rounding is larger than that.",
        source="the solver; nothing was released",
        remedy="scale the features to a norm near 1, take a larger regularisation or a larger tolerance",
    )


def _length(gradient: Array) -> float:
    return float(np.linalg.norm(gradient))


def _factored(objective: Objective) -> Step:
    """Newton's step by a Cholesky factor of the Hessian, for few weights."""

    def step(weights: Array, gradient: Array, accuracy: float) -> Array:
        return linalg.cho_solve(linalg.cho_factor(objective.hessian(weights)), gradient.ravel()).reshape(weights.shape)

    return step


class _ConjugateGradients:
    """In memory, rows are held as multiples of their bound, curvatures as multiples of the loss's."""

    def __init__(self, objective: Objective) -> None:
        self._objective, loss = objective, objective.loss
        self._kind = np.float32 if objective.regularisation >= _SINGLE * loss.smoothness else np.float64
        self._rows: Floats | None = None
        if isinstance(objective.data, MemoryRecords):
            self._rows = np.empty(objective.data.rows.shape, self._kind)
            np.divide(objective.data.rows, loss.row_norm, out=self._rows, casting="same_kind")
        diagonal = objective.shape[0] > _MOST_AXES
        moments = objective.moments(diagonal=diagonal) / (loss.row_norm**2 * max(len(objective.data), 1))
        self._moments = _Spectrum(moments) if diagonal else _Spectrum.of(moments)

    def __call__(self, weights: Array, gradient: Array, accuracy: float) -> Array:
        objective, moments = self._objective, self._moments
        multiplied, bent = self._products(weights)
        bends = self._bends(bent)
        scales = objective.loss.smoothness * np.outer(moments.values, bends.values) + objective.regularisation

        def product(flat: Array) -> Array:
            direction = flat.reshape(weights.shape)
            return (multiplied(direction) / objective.records + objective.regularisation * direction).ravel()

        def solved(flat: Array) -> Array:
            turned = bends.turn(moments.turn(flat.reshape(weights.shape)).T).T / scales
            return bends.turn_back(moments.turn_back(turned).T).T.ravel()

        square = gradient.size, gradient.size
        solution, _ = cg(
            LinearOperator(square, matvec=product, dtype=np.float64),
            gradient.ravel(),
            rtol=accuracy,
            maxiter=_PRODUCTS,
            M=LinearOperator(square, matvec=solved, dtype=np.float64),
        )
        return solution.reshape(weights.shape)

    def _products(self, weights: Array) -> tuple[Callable[[Array], Array], Array]:
        """The sum over records of $u_i(l_i''U^\\top u_i)^\\top$ as a function of U, and of $l_i''$ as a multiple of its bound."""
        objective, data, loss, small = self._objective, self._objective.data, self._objective.loss, self._rows
        if small is None or not isinstance(data, MemoryRecords):
            return lambda direction: objective.product(weights, direction), objective.bends(weights) / loss.curvature_bound
        parts = [
            (chunk, loss.curvatures(data.rows[chunk] @ weights, data.targets[chunk]).scaled(loss.curvature_bound, self._kind))
            for chunk in data.chunks()
        ]

        def multiplied(direction: Array) -> Array:
            length = _length(direction) or 1.0
            narrow, total = (direction / length).astype(self._kind), np.zeros(weights.shape)
            for chunk, part in parts:
                total += small[chunk].T @ part.times(small[chunk] @ narrow)
            return length * loss.smoothness * total

        return multiplied, sum((part.sum() for _, part in parts), start=np.zeros((loss.outputs, loss.outputs)))

    def _bends(self, total: Array) -> _Spectrum:
        """Of A; of many scores the bound on its trace, spread evenly."""
        loss = self._objective.loss
        if loss.outputs > _MOST_AXES:
            return _Spectrum(np.full(loss.outputs, loss.curvature_trace / loss.curvature_bound / loss.outputs))
        return _Spectrum.of(total / self._objective.records)


@dataclass(frozen=True, slots=True, eq=False)
class _Spectrum:
    """Eigenvalues, none below 0, and eigenvectors in columns; without these, the axes themselves."""

    values: Array
    vectors: Array | None = None

    @classmethod
    def of(cls, symmetric: Floats) -> _Spectrum:
        values, vectors = linalg.eigh(symmetric)
        return cls(np.maximum(values, 0.0).astype(np.float64), vectors.astype(np.float64))

    def turn(self, columns: Array) -> Array:
        return columns if self.vectors is None else self.vectors.T @ columns

    def turn_back(self, columns: Array) -> Array:
        return columns if self.vectors is None else self.vectors @ columns

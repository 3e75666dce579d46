r"""Newton's method for a regularised risk: the Hessian factored where W is small, conjugate gradients where it is not.

$$H = \frac1n\sum_i u_iu_i^\top\otimes l_i'' + \lambda I$$

takes $n(Dk)^2$ operations to form and only $4nDk$ to multiply by. Conjugate gradients solve $HS = \nabla F$ in the metric of

$$P = C\otimes A + \lambda I,\qquad C = \frac1m\sum_iu_iu_i^\top,\quad A = \frac1n\sum_il_i'',$$

whose inverse is a division in the eigenvectors of C and A. H is P for records whose curvatures do not depend on their rows; what is left to
the iteration is that dependence, and not the range of C's eigenvalues or the directions in which the scores' common shift changes nothing.

Steps need not be exact: products are in single precision where $\lambda$ stands out from its rounding. The gradient, on which the
accuracy rests, is in double precision always.

Reference: Nocedal, Wright 2006, "Numerical optimization", Algorithm 7.1 and Theorem 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.linear_objective import LinearObjective
from lethe.mechanisms.minimisers.summed_objective import SummedObjective
from lethe.run.losses.curvatures import Curvatures, Floats

Objective = LinearObjective | SummedObjective
# From the weights, the gradient and the accuracy that is wanted, relative to the gradient's length.
Step = Callable[[Array, Array, float], Array]

_MOST_WEIGHTS_TO_FACTOR = 200
_STEPS, _HALVINGS, _PRODUCTS = 100, 30, 300
_MOST_AXES = 2_000  # eigenvectors take seconds up to here
_SINGLE = 1e-6  # of the largest curvature: a ridge that stands out from the rounding of single precision


def is_factored(weights: int) -> bool:
    """Whether the Hessian of so many weights is formed and factored."""
    return weights <= _MOST_WEIGHTS_TO_FACTOR


def newton(objective: Objective, tolerance: float) -> Array:
    r"""Weights with $\|\nabla F\| \le \tau$, or as near to it as the method came; nothing is random.

    Args:
        objective: F.
        tolerance: $\tau > 0$.
    Returns:
        W, shape (D, k).
    """
    weights = np.zeros(objective.shape)
    value, gradient = objective.value_and_gradient(weights)
    length = first = float(np.linalg.norm(gradient))
    step: Step | None = None
    for _ in range(_STEPS):
        if length <= tolerance:
            break
        step = step or _step_of(objective)
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
            trial_length = float(np.linalg.norm(trial_gradient))
            # Near the end values agree to rounding, and a shorter gradient is what counts.
            if trial_value <= value - 0.25 * size * slope or trial_length < 0.5 * length:
                break
            size *= 0.5
        else:
            break
        weights, value, gradient, length = trial, trial_value, trial_gradient, trial_length
    return weights


def _step_of(objective: Objective) -> Step:
    if is_factored(math.prod(objective.shape)):
        return _factored(objective)
    return _ConjugateGradients(objective) if isinstance(objective, LinearObjective) else _SummedConjugateGradients(objective)


def _factored(objective: Objective) -> Step:
    def step(weights: Array, gradient: Array, accuracy: float) -> Array:
        return linalg.cho_solve(linalg.cho_factor(objective.hessian(weights)), gradient.ravel()).reshape(weights.shape)

    return step


class _ConjugateGradients:
    """Rows are held as multiples of their bound, curvatures as multiples of the loss's."""

    def __init__(self, objective: LinearObjective) -> None:
        self._objective = objective
        self._largest = objective.loss.smoothness
        self._kind = np.float32 if objective.regularisation >= _SINGLE * self._largest else np.float64
        self._rows: Floats = np.empty(objective.rows.shape, self._kind)
        np.divide(objective.rows, objective.loss.row_norm, out=self._rows, casting="same_kind")
        count, columns = self._rows.shape
        if columns <= _MOST_AXES:
            self._moments = _Spectrum.of(self._rows.T @ self._rows / max(count, 1))
        else:
            self._moments = _Spectrum(np.einsum("nd,nd->d", self._rows, self._rows) / max(count, 1))

    def __call__(self, weights: Array, gradient: Array, accuracy: float) -> Array:
        objective = self._objective
        parts = [(chunk, self._curvatures(weights, chunk)) for chunk in objective.chunks()]
        bends = self._bends([part for _, part in parts])
        scales = self._largest * np.outer(self._moments.values, bends.values) + objective.regularisation

        def product(flat: Array) -> Array:
            length = float(np.linalg.norm(flat)) or 1.0
            direction = (flat / length).reshape(weights.shape)
            narrow, total = direction.astype(self._kind), np.zeros(weights.shape)
            for chunk, part in parts:
                total += self._rows[chunk].T @ part.times(self._rows[chunk] @ narrow)
            return length * (self._largest / objective.records * total + objective.regularisation * direction).ravel()

        return _conjugate_gradients(product, gradient, accuracy, (self._moments, bends, scales))

    def _curvatures(self, weights: Array, chunk: slice) -> Curvatures:
        loss, targets = self._objective.loss, self._objective.targets[chunk]
        return loss.curvatures(self._objective.rows[chunk] @ weights, targets).scaled(loss.curvature_bound, self._kind)

    def _bends(self, parts: list[Curvatures]) -> _Spectrum:
        outputs = self._objective.shape[1]
        return _bends(self._objective, sum((part.sum() for part in parts), start=np.zeros((outputs, outputs))))


class _SummedConjugateGradients:
    """The same on a partitioned table: a product is a pass, in double precision, and the preconditioner takes one pass in all."""

    def __init__(self, objective: SummedObjective) -> None:
        self._objective = objective
        scale = objective.loss.row_norm**2 * max(len(objective.sums), 1)
        if objective.shape[0] <= _MOST_AXES:
            self._moments = _Spectrum.of(objective.moments() / scale)
        else:
            self._moments = _Spectrum(objective.squares() / scale)

    def __call__(self, weights: Array, gradient: Array, accuracy: float) -> Array:
        objective = self._objective
        bends = _bends(objective, objective.bends(weights) / objective.loss.curvature_bound)
        scales = objective.loss.smoothness * np.outer(self._moments.values, bends.values) + objective.regularisation

        def product(flat: Array) -> Array:
            direction = flat.reshape(weights.shape)
            return (objective.product(weights, direction) / objective.records + objective.regularisation * direction).ravel()

        return _conjugate_gradients(product, gradient, accuracy, (self._moments, bends, scales))


def _bends(objective: Objective, total: Array) -> _Spectrum:
    """Of A, from the sum of curvatures as multiples of their bound; of many scores the bound on its trace, spread evenly."""
    outputs, loss = objective.shape[1], objective.loss
    if outputs > _MOST_AXES:
        return _Spectrum(np.full(outputs, loss.curvature_trace / loss.curvature_bound / outputs))
    return _Spectrum.of(total / objective.records)


def _conjugate_gradients(
    product: Callable[[Array], Array], gradient: Array, accuracy: float, preconditioner: tuple[_Spectrum, _Spectrum, Array]
) -> Array:
    moments, bends, scales = preconditioner

    def solved(flat: Array) -> Array:
        turned = bends.turn(moments.turn(flat.reshape(gradient.shape)).T).T / scales
        return bends.turn_back(moments.turn_back(turned).T).T.ravel()

    found, _ = cg(
        LinearOperator((gradient.size, gradient.size), matvec=product, dtype=np.float64),
        gradient.ravel(),
        rtol=accuracy,
        maxiter=_PRODUCTS,
        M=LinearOperator((gradient.size, gradient.size), matvec=solved, dtype=np.float64),
    )
    return found.reshape(gradient.shape)


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

"""A solver's recursion as a `lethe.Run`, so that last-iterate theorems apply to it."""

from __future__ import annotations

import math

import numpy as np

from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.problem import Problem
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace
from lethe.run.batches import Cyclic, Full
from lethe.run.precision import UNIT_ROUNDOFF, Precision
from lethe.run.regularisers import Ball as BallConstraint
from lethe.run.regularisers import Box as BoxConstraint
from lethe.run.regularisers import Regulariser
from lethe.run.run import Run


def recursion(problem: Problem, oracle: MeanOracle, *, records: int, batch_size: int, passes: int, step_sizes: Array) -> Run | None:
    r"""Projected clipped descent with cyclic batches as a run; None where a run cannot say it.

    All is computed in float64, the noise added to the mean. On the whole space nothing bounds the iterates: the run declares them exact.

    The oracle's noise of standard deviation $\sigma$ on a mean of b is a multiplier $z = b\sigma/C$ on the sum, rounded down.

    Args:
        problem: its domain is the run's constraint; a centre is nothing but an origin.
        oracle: of single means.
        records: n.
        batch_size: b.
        passes: E.
        step_sizes: shape (T,).
    """
    constraint, known = _constraint(problem.domain, problem.dimension)
    if not isinstance(oracle, ClippedMean) or oracle.rho == math.inf or not known:
        return None
    deviation = oracle.release(batch_size, problem.dimension).noise_std
    alike = bool(np.all(step_sizes == step_sizes[0]))
    try:
        return Run(
            records=records,
            batches=Full() if batch_size == records else Cyclic(size=batch_size),
            passes=passes,
            step_size=float(step_sizes[0]) if alike else step_sizes.tolist(),
            clip_norm=oracle.clip_norm,
            noise_multiplier=batch_size * deviation / oracle.clip_norm * (1.0 - 4e-16),
            regulariser=constraint,
            neighbours="replace_one",
            release="last",
            precision=_precision(problem.domain, problem.dimension, batch_size, oracle.clip_norm),
        )
    except InputError:  # numbers beyond what a run may hold: the phases say what it costs
        return None


def _precision(domain: ConvexSet, dimension: int, batch_size: int, clip_norm: float) -> Precision | None:
    r"""The norm of the set's points, seven roundings at it, and what rounding does to a mean of clipped rows: $u(b + d + 32)C$.

    The move rounds twice, the new point once, and those of a centre, which is taken off and put back, twice more. A long move is cut off by
    the set, and its rounding with it (docs/theory.md, section 14).
    """
    if isinstance(domain, BallDomain):
        norm = domain.radius + float(np.linalg.norm(domain.centre or 0.0))
    elif isinstance(domain, BoxDomain):
        norm = float(np.linalg.norm(np.maximum(np.abs(domain.low), np.abs(domain.high))))
    else:
        return None
    error = UNIT_ROUNDOFF["float64"] * (batch_size + dimension + 32) * clip_norm
    return Precision(dtype="float64", parameter_norm=norm * (1.0 + 2**-40), gradient_error=error, roundings=7.0)


def _constraint(domain: ConvexSet, dimension: int) -> tuple[Regulariser | None, bool]:
    """The constraint of a run, and whether there is one that says it."""
    if isinstance(domain, WholeSpace):
        return None, True
    if isinstance(domain, BallDomain):
        return BallConstraint(radius=domain.radius), True
    if isinstance(domain, BoxDomain):
        widths = np.subtract(domain.high, domain.low)
        half = 0.5 * float(widths.max()) * (1.0 + 2**-50)
        return BoxConstraint(half_width=half, dimension=dimension), bool(np.ptp(widths) <= 1e-12 * half)
    return None, False

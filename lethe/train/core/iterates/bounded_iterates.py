r"""A bound on the norm of a run's iterates, kept by a projection, so that what their rounding costs is known before training.

$$\frac N2 \ge \|x_0\| + \sum_t \lambda_tC + (\sqrt d + 12)\sqrt{\textstyle\sum_t\tau_t^2}$$

is public, and training goes beyond it with a probability below $e^{-70}$. The projection on that ball, before the proximal step, brings no
two iterates further apart, and cuts off of a long move what it rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.precision import Precision
from lethe.run.regularisers import Simplex
from lethe.run.run import Run
from lethe.train.core.iterates.projection import joint_norm

# What a gradient alone moves to lies within two radii. A step rounds at most 34.5 times at the radius (docs/theory.md, section 14).
_ABOVE_RADIUS, _ROUNDINGS = 2.0, 18.0


def precision_of(run: Run, start_norm: float, dimension: int, gradient_error: Callable[[float], float]) -> Precision:
    """The precision of float64 iterates that begin at a public start: what `run` says, else with the norm of this file's head.

    Args:
        run: planned.
        start_norm: of all trained parameters together.
        dimension: d, their number.
        gradient_error: of Precision, from the norm that iterates are kept within.
    Raises:
        InputError: the run says less than this trainer needs, or no finite norm bounds the iterates.
    """
    longest = float(run.step_sizes.max()) * run.clip_bound
    least = max([start_norm, *(part.total for part in run.regularisers if isinstance(part, Simplex))])  # whatever else has 0 in its domain
    path = float(run.step_sizes.sum()) * run.clip_bound + (math.sqrt(dimension) + 12.0) * float(np.linalg.norm(run.noise_stds))
    needed = least + path
    if not math.isfinite(needed):
        raise InputError(
            f"the norm of the iterates has no bound: of the start it is {start_norm:.3g}, and steps and noise add up to {path:.3g}.",
            source="the initial parameters, run.step_size and run.noise_multiplier",
            remedy="take a smaller start, smaller steps or less noise.",
        )
    if run.precision is None:
        radius = needed * (1.0 + 2.0**-20) or 1.0
        norm, error = _ABOVE_RADIUS * radius, gradient_error(radius)
        return Precision(dtype="float64", parameter_norm=norm, gradient_error=error, roundings=_ROUNDINGS)
    said = run.precision
    error, norm = gradient_error(radius_of(said)), _ABOVE_RADIUS * max(least, longest)
    if said.dtype != "float64" or said.parameter_norm < norm or said.gradient_error < error or said.roundings < _ROUNDINGS:
        raise InputError(
            f"precision: got {said!r}; this training is in float64, with parameter_norm >= {norm:.3g}, gradient_error >= {error:.3g} and "
            f"roundings >= {_ROUNDINGS:g}.",
            source="run.precision",
            remedy="leave precision out of the run: training fills it in.",
        )
    return said


def most_records(run: Run) -> float:
    r"""K, what no batch holds more of: of random size $b + 12\sqrt b + 100$, but for a probability below $e^{-70}$."""
    size = float(run.batch_size)
    return size if run.batches.exact_size else min(float(run.records), size + 12.0 * math.sqrt(size) + 100.0)


def radius_of(precision: Precision) -> float:
    """The radius of the ball that iterates are projected on."""
    return precision.parameter_norm / _ABOVE_RADIUS


@torch.no_grad()
def keep_within(tensors: Sequence[Tensor], radius: float) -> None:
    """Project the concatenation of float64 tensors on the ball of this radius, in place; inside it every bit stays as it is.

    Args:
        tensors: on one device, which is not waited for.
        radius: > 0.
    """
    factor = (radius / joint_norm(tensors)).clamp(max=1.0)
    torch._foreach_mul_(list(tensors), factor)  # pyright: ignore[reportPrivateImportUsage]

r"""A bound on the norm of a run's iterates, kept by a projection, so that what their rounding costs is known before training.

$$N \ge \|x_0\| + \sum_t \lambda_tC + (\sqrt d + 12)\sqrt{\textstyle\sum_t\tau_t^2}$$

is public, and training goes beyond it with a probability below $e^{-70}$. The projection on that ball is a proximal step of its own: it
brings no two iterates further apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.precision import Precision
from lethe.run.run import Run

# The projection rounds twice where it acts, which a Run does not count: a norm so much larger than the ball's does.
_ABOVE_RADIUS = 4.0


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
    path = float(run.step_sizes.sum()) * run.clip_bound + (math.sqrt(dimension) + 12.0) * float(np.linalg.norm(run.noise_stds))
    needed = start_norm + path
    if not math.isfinite(needed):
        raise InputError(
            f"the norm of the iterates has no bound: of the start it is {start_norm:.3g}, and steps and noise add up to {path:.3g}.",
            source="the initial parameters, run.step_size and run.noise_multiplier",
            remedy="take a smaller start, smaller steps or less noise.",
        )
    if run.precision is None:
        radius = needed * (1.0 + 2.0**-20) or 1.0
        return Precision(dtype="float64", parameter_norm=_ABOVE_RADIUS * radius, gradient_error=gradient_error(radius))
    said = run.precision
    error = gradient_error(radius_of(said))
    if said.dtype != "float64" or said.parameter_norm < _ABOVE_RADIUS * start_norm or said.gradient_error < error:
        raise InputError(
            f"precision: got {said!r}; this training is in float64, with parameter_norm >= {_ABOVE_RADIUS * start_norm:.3g} and "
            f"gradient_error >= {error:.3g}.",
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
    norms = torch._foreach_norm(list(tensors))  # pyright: ignore[reportPrivateImportUsage]
    factor = (radius / torch.linalg.vector_norm(torch.stack(norms))).clamp(max=1.0)
    torch._foreach_mul_(list(tensors), factor)  # pyright: ignore[reportPrivateImportUsage]

r"""What is done to an iterate besides the gradient: projections, averages of a pass, and the ball that bounds its norm.

`Descent` and the linear loop call it at each step. Where only the last iterate is released, what rounding the others costs must be known
before training, so their norm needs a public bound. $x_0$ is the start, $\lambda_t$ the step size, C the clip norm, $\tau_t$ the noise's
standard deviation in each of d coordinates, N the ball's diameter:
$$\frac N2 \ge \|x_0\| + \sum_t \lambda_tC + (\sqrt d + 12)\sqrt{\textstyle\sum_t\tau_t^2},$$

which is public; training exceeds it with a probability below $e^{-70}$. The projection on that ball, before the proximal step, brings no
two iterates further apart, and cuts off of a long move what it rounds.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.rounding import pairwise_sum
from lethe.errors import InputError, LetheError
from lethe.run.precision import Precision
from lethe.run.regularisers import Simplex
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array

# What a gradient alone moves to lies within two radii. A step rounds at most 34.5 times at the radius (docs/theory.md, section 14).
_ABOVE_RADIUS, _ROUNDINGS = 2.0, 18.0
_MOST_LOST = 0.5  # of a radius that is rounded inward


def inward(radius: float, dimension: int, dtype: torch.dtype) -> float:
    r"""A radius so far below `radius` that a vector scaled to it, in `dtype`, has true norm at most `radius`.

    $$r\,\big(1 - (d + 16)\,\mathrm{eps}\big)$$

    Here d is the dimension: a norm of so many numbers costs at most $(d+2)/2$ roundings.
    """
    if (lost := (dimension + 16) * torch.finfo(dtype).eps) > _MOST_LOST:
        raise InputError(f"a vector of {dimension} numbers: its norm in {dtype} is too uncertain to bound.", remedy="use float64.")
    return radius * (1.0 - lost)


@torch.no_grad()
def joint_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of the concatenation in float64, on the first tensor's device, which is not waited for; one of many numbers at once.

    It is added up pairwise, so that it is known to some thirty roundings, however many numbers it is of.
    """
    sums = []
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        squares = torch.cat([tensor.reshape(-1).double() for tensor in tensors if tensor.device == device]).square_()
        pairwise_sum(squares.numpy() if squares.is_cpu else squares)  # NumPy takes a fifth of the time for few numbers
        sums.append(squares[0].to(tensors[0].device))
    return pairwise_sum(torch.stack(sums)).sqrt()


def onto_ball(rows: Tensor, radius: float, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    r"""Each row $u$ scaled to $u\min(1, r/\|u\|)$, rounded inward, so that no row's true norm exceeds `radius`.

    Rows have shape (n, d); `dtype` is the type the result will be stored in. Also which rows, shape (n,), lay outside by more than
    rounding.
    """
    # Through the largest entry, so that squares of 1e200 do not overflow and squares of 1e-200 do not vanish.
    largest = rows.abs().amax(dim=1, keepdim=True)
    unit = rows / torch.where(largest > 0, largest, 1.0)
    length = pairwise_sum(unit.square()).sqrt().unsqueeze(1)
    norm = largest * length
    limit = inward(radius, rows.shape[1], dtype or rows.dtype)
    outside = norm.squeeze(1) > radius * (2.0 - limit / radius)
    return torch.where(norm <= limit, rows, unit * (limit / length)), outside


@torch.no_grad()
def keep_within(tensors: Sequence[Tensor], radius: float) -> None:
    """Project the concatenation of float64 tensors of one device on a ball, in place; inside it every bit stays as it is."""
    factor = (radius / joint_norm(tensors)).clamp(max=1.0)
    torch._foreach_mul_(list(tensors), factor)  # pyright: ignore[reportPrivateImportUsage]


def refuse_overflow(last: Iterable[Tensor], run: Run, *, remedy: str = "take smaller steps or less noise.") -> None:
    """Raise LetheError for a last iterate that is not finite."""
    if not all(bool(torch.isfinite(tensor).all()) for tensor in last):
        raise LetheError(
            "training overflowed: the last iterate is not finite.",
            source=f"step_size up to {run.step_sizes.max():g}, and noise_multiplier",
            remedy=remedy,
        )


def radius_of(precision: Precision) -> float:
    """The radius of the ball that iterates are projected on."""
    return precision.parameter_norm / _ABOVE_RADIUS


def most_records(run: Run) -> float:
    r"""K, what no batch holds more of: of random size $b + 12\sqrt b + 100$, but for a probability below $e^{-70}$."""
    size = float(run.batch_size)
    return size if run.batches.exact_size else min(float(run.records), size + 12.0 * math.sqrt(size) + 100.0)


def precision_of(run: Run, start_norm: float, dimension: int, gradient_error: Callable[[float], float]) -> Precision:
    """The precision of float64 iterates that begin at a public start: what `run` says, else with the norm of this file's head.

    `start_norm` and `dimension` are of all trained parameters together; `gradient_error` follows from the norm that iterates are kept
    within.
    """
    longest = float(run.step_sizes.max()) * run.clip_bound
    smallest_norm = max(
        [start_norm, *(part.total for part in run.regularisers if isinstance(part, Simplex))]
    )  # whatever else has 0 in its domain
    path = float(run.step_sizes.sum()) * run.clip_bound + (math.sqrt(dimension) + 12.0) * float(np.linalg.norm(run.noise_stds))
    needed = smallest_norm + path
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
    recorded = run.precision
    error, norm = gradient_error(radius_of(recorded)), _ABOVE_RADIUS * max(smallest_norm, longest)
    if recorded.dtype != "float64" or recorded.parameter_norm < norm or recorded.gradient_error < error or recorded.roundings < _ROUNDINGS:
        raise InputError(
            f"precision: got {recorded}; it needs float64, parameter_norm >= {norm:.3g}, gradient_error >= {error:.3g}, roundings "
            f">= {_ROUNDINGS:g}.",
            source="run.precision",
            remedy="leave precision out of the run: training fills it in.",
        )
    return recorded


class PassAverage:
    r"""Returns $y_1, y_2, \dots$ of a pass unchanged, but $\sum_k \omega_k y_k$ at the last step of the pass; then begins anew.

    Every $y_k$ stands before its proximal step and before any noise. Weights that are 0 take no part: with $\omega = (0, \dots, 0, 1)$ the
    result is $y_\ell$ bit for bit. The weights are of shape (l,), with sum 1.
    """

    def __init__(self, weights: Array) -> None:
        self._weights: list[float] = weights.tolist()
        self._place = 0
        self._sum: Tensor | None = None

    def __call__(self, moved: Tensor) -> Tensor:
        """The iterate itself, or the pass's average when it is the pass's last."""
        weight = self._weights[self._place]
        self._place = (self._place + 1) % len(self._weights)
        if weight > 0:
            self._sum = weight * moved if self._sum is None else self._sum + weight * moved
        if self._place or self._sum is None:  # some weight is positive
            return moved
        averaged, self._sum = self._sum, None
        return averaged

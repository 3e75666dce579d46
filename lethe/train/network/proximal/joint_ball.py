"""Many tensors projected as one vector, rounded inward, without copying them together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.calculus.domains import outside, require_positive
from lethe.errors import LetheError
from lethe.train.core.iterates import inward, joint_norm
from lethe.train.core.tensors import dimension

_SMALLEST, _LARGEST = 1e-30, 1e140

# More than one rounding to float32, relative: scaling is the only arithmetic done in it, norms are computed in float64.
_FLOAT32_SLACK = 2.0**-22


def inward_in_storage(bound: float, tensors: Sequence[Tensor]) -> float:
    """A bound on a norm or a sum so far below `bound` that float64 arithmetic and storing each entry as it is keep the true one below."""
    slack = _FLOAT32_SLACK if any(tensor.dtype == torch.float32 for tensor in tensors) else 0.0
    return inward(bound, dimension(tensors), torch.float64) * (1.0 - slack)


def require_radius(name: str, radius: float) -> float:
    """Return a radius that float32 and the squares of float64 can serve, or raise InputError."""
    radius = require_positive(name, radius)
    if not _SMALLEST <= radius <= _LARGEST:
        raise outside(name, radius, f"a number from {_SMALLEST:g} to {_LARGEST:g}")
    return radius


@torch.no_grad()
def onto_joint_ball(tensors: Sequence[Tensor], radius: float) -> None:
    r"""In place: $x \leftarrow \arg\min_u \{\|u - x\| : \|u\| \le r\}$ for the concatenation x of the tensors, that is $x\min(1, r/\|x\|)$.

    Rounded inward: the true norm of the result is at most r, also in float32, where `onto_ball` would lose a share of about
    $10^{-7} d$ of the radius.

    Args:
        tensors: float32 or float64.
        radius: r, from 1e-30 to 1e140.
    Raises:
        LetheError: an entry is not finite, or above 1e140 in size.
    """
    norm = float(joint_norm(tensors)) if dimension(tensors) else 0.0
    if not norm < _LARGEST:
        raise LetheError(
            f"the norm to be bounded by {radius:g} is {norm:g}: training has diverged.",
            source="the parameters or their gradients",
            remedy="take smaller steps or less noise.",
        )
    limit = inward_in_storage(radius, tensors)
    if norm > limit:
        for tensor in tensors:
            tensor.mul_(limit / norm)

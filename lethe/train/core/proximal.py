r"""Exact proximal steps of a sum of regularisers h of one group of tensors, as stages that are taken one after the other.

The linear loop and `Descent` take such a step after each gradient step, influence/retraining.py repeats it. The certificate of a last
iterate needs the exact argmin $\mathrm{prox}_h$ (it brings no two points further apart), so other sums are refused.

Shrinking first, the domain last: soft threshold, group threshold or singular values, ridge, then ball, box or simplex. Only sums for which
that is their argmin, not a mere sequence, are accepted:

- Every shrinking part is positively homogeneous, so its subdifferential does not change when later stages multiply the whole group by
  a factor > 0; ridge and ball do just that, and what they displace is radial (Yu 2013, "On decomposing the proximal map", NeurIPS,
  Theorem 4). For l1 before group l1 the same holds block by block, and a block that becomes 0 admits every subgradient.
- l1, ridge and box act on each coordinate alone, and the argmin of a convex function of one number on an interval is the nearest point
  of the interval to the argmin without it.
- Ridge only rescales the quadratic that a projection on a simplex minimises.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from lethe.calculus.domains import outside, require_positive
from lethe.calculus.rounding import pairwise_sum
from lethe.errors import InputError, LetheError
from lethe.errors.names import in_other_words
from lethe.run.regularisers import L1, L1L2, L2, Ball, Box, GroupL1, NuclearNorm, Regulariser, Simplex
from lethe.train.core.iterates import inward, joint_norm
from lethe.train.core.tensors import checked_tensors, dimension

_SMALLEST, _LARGEST = 1e-30, 1e140
# More than one rounding to float32, relative: scaling is the only arithmetic done in it, norms are computed in float64.
_FLOAT32_SLACK = 2.0**-22

Stage: TypeAlias = Callable[[Sequence[Tensor], float], Iterable[Tensor]]
"""Of the tensors and the step size: what is to stand in their places, made one after the other."""

Proximal: TypeAlias = Callable[[Tensor, float], Tensor]


@in_other_words
@dataclass(frozen=True, slots=True, kw_only=True)
class ProximalGroup:
    r"""Some parameters, and the h that acts on them together: $h(x_g)$ of their concatenation $x_g$.

    Args:
        regularisers: those whose sum is h; their strengths, radii and dimension are about this group alone.
        parameters: names; None: all of the network's, which then is the only group.
        blocks: what `group_l1` sums over: "rows", the first dimension's slices of each tensor (the units of a layer, the filters of a
            convolution; the single entries of a vector), or "tensors".
    """

    regularisers: tuple[Regulariser, ...]
    parameters: tuple[str, ...] | None = None
    blocks: Literal["rows", "tensors"] = "rows"


class NetworkProximal:
    r"""$x \mapsto \arg\min_u \sum_g h_g(u_g) + \frac{1}{2\lambda}\|u - x\|^2$ over disjoint groups g; what is in no group stays as it is.

    The argmin of a sum over disjoint groups is the argmin of each, so this is one proximal step of one convex h: it is nonexpansive, and
    a certificate's recursion goes through it.
    """

    def __init__(self, parameters: Mapping[str, Tensor], groups: Sequence[ProximalGroup]) -> None:
        checked_tensors(parameters.values())
        self._stages: list[tuple[list[Tensor], Stage]] = []
        assigned: set[str] = set()
        for group in groups:
            tensors = [parameters[name] for name in _members(parameters, group, assigned)]
            self._stages += [(tensors, stage) for stage in _stages_of(group.regularisers, tensors, group.blocks)]

    @torch.no_grad()
    def step(self, step_size: float) -> None:
        r"""Take the step in place, once the gradient and the noise have been added.

        Args:
            step_size: $\lambda > 0$.
        Raises:
            InputError: the step size is out of range.
            LetheError: the parameters are not finite where they are to be bounded.
        """
        step_size = require_positive("step_size", step_size)
        for tensors, stage in self._stages:
            for tensor, moved in zip(tensors, stage(tensors, step_size), strict=True):
                tensor.copy_(moved)


def bounded(regularisers: Sequence[Regulariser]) -> tuple[Regulariser, ...]:
    """Those with a bounded domain: their proximal step is the projection on it, whatever the step size."""
    return tuple(part for part in regularisers if part.diameter < math.inf)


def _members(parameters: Mapping[str, Tensor], group: ProximalGroup, assigned: set[str]) -> tuple[str, ...]:
    """The names of a group, added to those of the groups before it."""
    if group.blocks not in ("rows", "tensors"):
        raise InputError(f"blocks: got {group.blocks!r}; it needs rows or tensors.")
    names = tuple(parameters) if group.parameters is None else tuple(group.parameters)
    if not names:
        raise InputError("parameters: got no names; a group needs at least one.", remedy="leave it out to mean all parameters.")
    for name in names:
        if name not in parameters:
            raise InputError(f"parameters: {name!r} is not one that is trained: {', '.join(parameters)}.", source="a proximal group")
        if name in assigned:
            raise InputError(
                f"parameters: {name!r} is in a group twice, or in two; the steps of overlapping groups do not add up to one proximal step.",
                source="the proximal groups",
                remedy="make the groups disjoint, and give a parameter all its regularisers in one group.",
            )
        assigned.add(name)
    return names


def proximal_step(regularisers: Sequence[Regulariser]) -> Proximal:
    r"""$y \mapsto \mathrm{prox}_{\lambda h}(y) = \arg\min_x h(x) + \frac{1}{2\lambda}\|x-y\|^2$ of a linear model's parameters.

    h, the sum of the regularisers, acts on all of them together, the intercept's included: that is what a certificate's contraction and
    diameter are about.
    """
    for part in regularisers:
        if not isinstance(part, L1 | L2 | L1L2 | Ball):
            raise InputError(
                f"regulariser.kind: got {part.kind}; the trainer's proximal steps are ridge, l1, elastic_net and ball.",
                source="regulariser",
                remedy="use one of these; bound the parameters by a ball instead of a box or simplex.",
            )
    stages = _stages_of(regularisers, (), "rows")

    def step(parameters: Tensor, step_size: float) -> Tensor:
        for stage in stages:
            (parameters,) = stage((parameters,), step_size)
        return parameters

    return step


def _stages_of(regularisers: Sequence[Regulariser], tensors: Sequence[Tensor], blocks: Literal["rows", "tensors"]) -> list[Stage]:
    """The stages of the group's proximal step, in order; an error of a sum whose argmin is not known in closed form."""
    _refuse(regularisers, tensors)
    l1 = sum(part.strength for part in regularisers if isinstance(part, L1))
    l1 += sum(part.l1_strength for part in regularisers if isinstance(part, L1L2))
    ridge = sum(part.strong_convexity for part in regularisers)
    group = sum(part.strength for part in regularisers if isinstance(part, GroupL1))
    nuclear = sum(part.strength for part in regularisers if isinstance(part, NuclearNorm))
    radius = min((part.radius for part in regularisers if isinstance(part, Ball)), default=math.inf)
    width = min((part.half_width for part in regularisers if isinstance(part, Box)), default=math.inf)
    totals = [part.total for part in regularisers if isinstance(part, Simplex)]
    for name, bound in (("radius", radius), ("half_width", width), ("total", totals[0] if totals else math.inf)):
        if bound < math.inf and not _SMALLEST <= bound <= _LARGEST:  # what float32, and the squares of float64, can serve
            raise outside(f"regulariser.{name}", bound, f"a number from {_SMALLEST:g} to {_LARGEST:g}")
    stages: list[tuple[bool, Stage]] = [
        (l1 > 0, _each(lambda tensor, step_size: nn.functional.softshrink(tensor, step_size * l1))),
        (group > 0, _each(lambda tensor, step_size: _shrunk_blocks(tensor, step_size * group, blocks))),
        (nuclear > 0, _each(lambda tensor, step_size: _shrunk_singular_values(tensor, step_size * nuclear))),
        (ridge > 0, _each(lambda tensor, step_size: tensor / (1.0 + step_size * ridge))),
        (radius < math.inf, lambda members, _: _onto_joint_ball(members, radius)),
        (width < math.inf, _each(lambda tensor, _: _boxed(tensor, width))),
        (bool(totals), lambda members, _: _onto_simplex(members, totals[0])),
    ]
    return [stage for is_active, stage in stages if is_active]


def _each(part: Callable[[Tensor, float], Tensor]) -> Stage:
    """A part that acts on each tensor alone."""
    return lambda tensors, step_size: (part(tensor, step_size) if tensor.numel() else tensor for tensor in tensors)


def _shrunk_blocks(tensor: Tensor, threshold: float, blocks: Literal["rows", "tensors"]) -> Tensor:
    r"""$\arg\min_u k\sum_g\|u_g\| + \frac12\|u - x\|^2$: each block times $\max(0, 1 - k/\|x_g\|)$."""
    rows = tensor.reshape(1 if blocks == "tensors" or not tensor.ndim else len(tensor), -1)
    norms = pairwise_sum(rows.square()).sqrt()[:, None]
    return (rows * torch.where(norms > threshold, 1.0 - threshold / norms, 0.0)).view(tensor.shape)


def _shrunk_singular_values(tensor: Tensor, threshold: float) -> Tensor:
    r"""$\arg\min_U k\|U\|_* + \frac12\|U - X\|^2$: singular values less k, not below 0; dimensions after the first are flattened."""
    left_vectors, values, right = torch.linalg.svd(tensor.flatten(1), full_matrices=False)
    return ((left_vectors * (values - threshold).clamp(min=0.0)) @ right).view(tensor.shape)


def _boxed(tensor: Tensor, width: float) -> Tensor:
    r"""$\arg\min_u\{\|u - x\| : |u_i| \le w\}$, each entry clamped to the last number of its type inside."""
    bound = torch.tensor(width, dtype=tensor.dtype)
    if float(bound) > width:
        bound = torch.nextafter(bound, torch.zeros_like(bound))
    return tensor.clamp(-float(bound), float(bound))


def _inward_in_storage(bound: float, tensors: Sequence[Tensor]) -> float:
    """A bound on a norm or a sum so far below `bound` that float64 arithmetic and storing each entry as it is keep the true one below."""
    slack = _FLOAT32_SLACK if any(tensor.dtype == torch.float32 for tensor in tensors) else 0.0
    return inward(bound, dimension(tensors), torch.float64) * (1.0 - slack)


def _onto_joint_ball(tensors: Sequence[Tensor], radius: float) -> Iterable[Tensor]:
    r"""$\arg\min_u \{\|u - x\| : \|u\| \le r\}$ for the concatenation x of the tensors, that is $x\min(1, r/\|x\|)$.

    Rounded inward: the true norm of the result is at most r, also in float32, where `onto_ball` would lose a share of about
    $10^{-7} d$ of the radius.
    """
    norm = float(joint_norm(tensors)) if dimension(tensors) else 0.0
    if not norm < _LARGEST:
        raise LetheError(
            f"the norm to be bounded by {radius:g} is {norm:g}: training has diverged.",
            source="the parameters or their gradients",
            remedy="take smaller steps or less noise.",
        )
    limit = _inward_in_storage(radius, tensors)
    return tensors if norm <= limit else (tensor * (limit / norm) for tensor in tensors)


def _onto_simplex(tensors: Sequence[Tensor], total: float) -> Iterable[Tensor]:
    r"""$\arg\min_u\{\|u - x\| : u \ge 0, \sum_i u_i = t\}$ for the concatenation: $\max(x_i - \theta, 0)$ with the $\theta$ that fits.

    Rounded inward: the sum is at most t, and so the distance between two results at most $\sqrt2\,t$.

    Reference: Held, Wolfe, Crowder 1974, "Validation of subgradient optimization", Mathematical Programming 6.
    """
    point = torch.cat([tensor.reshape(-1).to(torch.float64) for tensor in tensors])
    if not bool(torch.isfinite(point).all()):
        raise LetheError("the parameters are not finite: training has diverged.", remedy="take smaller steps or less noise.")
    start = float(point.max()) - total
    for _ in range(2):  # a constant added to all entries changes nothing, and next to 0 the threshold rounds as little as it is long
        point -= _simplex_threshold(point, total, start)
        start = 0.0
    point.clamp_(min=0.0).mul_(_inward_in_storage(total, tensors) / total)
    parts = point.split([tensor.numel() for tensor in tensors])
    return (part.view(tensor.shape) for tensor, part in zip(tensors, parts, strict=True))


def _simplex_threshold(point: Tensor, total: float, start: float) -> float:
    r"""$\theta$ with $\sum_i\max(x_i - \theta, 0) = t$, by Newton's steps: after the first they go up, for the sum is convex in $\theta$.

    The sum is of differences, none below 0, so that it is off by a share of t: one of the $x_i$ would be by a share of theirs.
    """
    threshold, rising = start, False
    while True:
        inside = (point - threshold).clamp_(min=0.0)
        count = max(1, int(inside.count_nonzero()))
        following = threshold + (float(pairwise_sum(inside)) - total) / count
        if following == threshold or (rising and following < threshold):
            return threshold
        threshold, rising = following, True


def _refuse(regularisers: Sequence[Regulariser], tensors: Sequence[Tensor]) -> None:
    for part in regularisers:
        if not isinstance(part, L1 | L2 | L1L2 | GroupL1 | NuclearNorm | Ball | Box | Simplex):
            got = part.kind if isinstance(part, Regulariser) else type(part).__name__
            raise InputError(f"regulariser.kind: got {got}; no proximal step of it is known here.")
    kinds = {part.kind for part in regularisers}
    domains = kinds & {"ball", "box", "simplex"}
    shrinking = kinds & {"l1", "elastic_net", "group_l1", "nuclear_norm"}
    unknown = (
        len(domains) > 1
        or sum(isinstance(part, Simplex) for part in regularisers) > 1
        or ("nuclear_norm" in kinds and len(shrinking) > 1)
        or ("box" in kinds and shrinking & {"group_l1", "nuclear_norm"})
        or ("simplex" in kinds and shrinking)
    )
    if unknown:
        raise InputError(
            f"regulariser: no exact proximal step is known for the sum of {' and '.join(sorted(kinds))}.",
            source="a proximal group",
            remedy="take one domain only; l1 and ridge with any of them but a simplex; group_l1 and nuclear_norm with ridge or a ball.",
        )
    for part in regularisers:
        if isinstance(part, NuclearNorm) and any(tensor.ndim < 2 for tensor in tensors):
            raise InputError(
                "regulariser.kind: nuclear_norm is given for a tensor with fewer than two dimensions; it needs matrices.",
                source="a proximal group with nuclear_norm",
                remedy="leave biases and scales out of the group.",
            )
        if isinstance(part, Box) and part.dimension != dimension(tensors):
            raise InputError(
                f"regulariser.dimension: got {part.dimension}; the group's tensors hold {dimension(tensors)} numbers.",
                source="a proximal group with box",
                remedy=f"set dimension to {dimension(tensors)}: the diameter depends on it.",
            )

"""Which parameters are clipped together, to which norm, and by which factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from lethe.errors import InputError, require_finite

# How much a computed squared norm may lie below the square of what is added, in eps: 44 where it is a product of two sums of squares
# (`squares_of`), or where what is formed for the sum is brought to what was measured, 22 each; 4 for the roundings of the weight and of
# products with it; and a third as much again. Squares of float64 are summed in float64: one more for each number.
_ROUNDINGS = 64

# What keeps "automatic" factors finite; Bu et al. use 0.01 throughout.
# A gradient that is 0, such as of a bias before a normalisation, comes out as a few units of rounding of the others.
_ROUNDED_SHARE = 1e3
_STABILITY = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parameters whose gradients are clipped together.

    Args:
        parameters: patterns of their names, as model.named_parameters() gives them; `*` stands for anything ("encoder.*", "*bias").
        clip_norm: C_k > 0, the largest norm of a record's gradient in these parameters.
    """

    parameters: tuple[str, ...]
    clip_norm: float

    def __post_init__(self) -> None:
        if (
            not isinstance(self.parameters, tuple)
            or not all(isinstance(pattern, str) for pattern in self.parameters)
            or not self.parameters
        ):
            raise InputError(f"Group.parameters: got {self.parameters!r}; it needs a tuple of names or patterns, such as ('encoder.*',).")
        object.__setattr__(self, "clip_norm", checked_norm("Group.clip_norm", self.clip_norm))

    def holds(self, name: str) -> bool:
        """Whether the parameter of this name belongs to the group."""
        return any(fnmatchcase(name, pattern) for pattern in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    r"""How a gradient $v$ of norm $n$ is brought to norm at most $C$: $v \mapsto w(n)\, v$.

    Args:
        factor: $w$, of $C$ and of an upper bound of $n > 0$.
        projection: whether the map is the projection on the ball, which is 1-Lipschitz. Theorems that need it refuse the others.
        enlarges: whether w is unbounded as n goes to 0, so that what is nothing but rounding would be brought to norm C as well.
    """

    factor: Callable[[float, Tensor], Tensor]
    projection: bool
    enlarges: bool = False


METHODS: Mapping[str, Method] = {
    "clip": Method(factor=lambda norm, lengths: (norm / lengths).clamp_(max=1.0), projection=True),
    "normalise": Method(factor=lambda norm, lengths: norm / lengths, projection=False, enlarges=True),
    "automatic": Method(factor=lambda norm, lengths: norm / (lengths + _STABILITY), projection=False),
}
r"""`clip` $v\min(1, C/\|v\|)$; `normalise` $vC/\|v\|$ (0 stays 0, and a group of rounding alone stays small);
`automatic` $vC/(\|v\|+0.01)$ (Bu et al. 2022, arXiv:2206.07136)."""


def checked_norm(name: str, value: object) -> float:
    """A clipping norm: finite and positive, or InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name}: got {value!r}; it needs a finite number > 0.")
    return require_finite(name, value, low=0.0, strict=True)


def as_groups(clip_norm: float | Sequence[Group]) -> tuple[Group, ...]:
    """One group of all parameters for a number; groups as they are; an InputError for anything else."""
    if isinstance(clip_norm, tuple | list):
        if not clip_norm or not all(isinstance(group, Group) for group in clip_norm):
            raise InputError(f"clip_norm: got {clip_norm!r}; it needs a number > 0, or one Group or more.")
        return tuple(clip_norm)
    return (Group(parameters=("*",), clip_norm=checked_norm("clip_norm", clip_norm)),)


def group_of(name: str, groups: Sequence[Group]) -> int:
    """The place of the first group that holds the parameter; an InputError where none does."""
    for place, group in enumerate(groups):
        if group.holds(name):
            return place
    raise InputError(
        f"parameter {name} is trained and belongs to no group.",
        source="clip_norm",
        remedy=f"name it in a group, or end with Group(parameters=('*',), clip_norm=...), or freeze it: {name}.requires_grad_(False).",
    )


def clip_weights(
    squared: Tensor,
    group: Group,
    method: Method,
    *,
    numbers: int,
    dtype: torch.dtype,
    whole: Tensor | None = None,
) -> Tensor:
    r"""$w_i$ such that $w_i v_i$ has norm at most $C_k$, rounding errors included.

    The norm enters as an upper bound of the true norm: enlarged by what rounding may have taken from it, and by what may have vanished
    below the smallest number of the arithmetic. Where the norm is not finite the weight has no meaning.

    Args:
        squared: $\|v_i\|^2$ as computed, shape (B,), float64.
        group: C_k.
        method: the factor.
        numbers: how many numbers v has.
        dtype: of the arithmetic the gradients are summed in.
        whole: the squared norm of each record's gradient in all groups, shape (B,). Where a method enlarges, a group's share of it that
            rounding could have made counts as longer than it is: rounding changes with the size of the batch, so with other records.
    """
    limits = torch.finfo(dtype)
    roundings = _ROUNDINGS + numbers if dtype == torch.float64 else _ROUNDINGS
    lengths = (squared * (1 + roundings * limits.eps)).add_(4 * numbers * limits.tiny).sqrt_()
    if not method.enlarges:
        return method.factor(group.clip_norm, lengths)
    if whole is not None:
        lengths = torch.maximum(lengths, _ROUNDED_SHARE * limits.eps * whole.nan_to_num(nan=math.inf).sqrt())
    weights = method.factor(group.clip_norm, lengths)
    return torch.where(squared > 0, weights, weights.clamp(max=1.0))

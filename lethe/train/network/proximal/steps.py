r"""Exact proximal steps of a network's parameters, group by group, in place and after the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lethe.calculus.domains import require_positive
from lethe.documents.synonyms import class_in_other_words
from lethe.errors import InputError
from lethe.run.regularisers import Regulariser
from lethe.train.core.tensors import checked_tensors
from lethe.train.network.proximal.parts import Stage, stages_of


@class_in_other_words
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

    Args:
        parameters: name -> tensor, as `dict(model.named_parameters())` gives it.
        groups: in any order.
    Raises:
        InputError: unknown or repeated names, overlapping groups, or regularisers whose sum has no exact step here.
    """

    def __init__(self, parameters: Mapping[str, Tensor], groups: Sequence[ProximalGroup]) -> None:
        checked_tensors(parameters.values())
        self._stages: list[tuple[list[Tensor], Stage]] = []
        seen: set[str] = set()
        for group in groups:
            names = _members(parameters, group, seen)
            tensors = [parameters[name] for name in names]
            self._stages += [(tensors, stage) for stage in stages_of(group.regularisers, tensors, group.blocks)]

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
            stage(tensors, step_size)


def _members(parameters: Mapping[str, Tensor], group: ProximalGroup, seen: set[str]) -> tuple[str, ...]:
    """The names of a group, added to those of the groups before it."""
    if group.blocks not in ("rows", "tensors"):
        raise InputError(f"blocks: got {group.blocks!r}; it needs rows or tensors.")
    names = tuple(parameters) if group.parameters is None else tuple(group.parameters)
    if not names:
        raise InputError("parameters: got no names; a group needs at least one.", remedy="leave it out to mean all parameters.")
    for name in names:
        if name not in parameters:
            raise InputError(f"parameters: {name!r} is not one that is trained: {', '.join(parameters)}.", source="a proximal group")
        if name in seen:
            raise InputError(
                f"parameters: {name!r} is in a group twice, or in two; the steps of overlapping groups do not add up to one proximal step.",
                source="the proximal groups",
                remedy="make the groups disjoint, and give a parameter all its regularisers in one group.",
            )
        seen.add(name)
    return names

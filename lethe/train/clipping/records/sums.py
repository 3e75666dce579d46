"""The sums of clipped gradients: each record's gradient is measured, brought to the clip norm and added."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.groups import Group, Method, clip_weights, group_of
from lethe.train.clipping.records.joined import Owned, apart, joined
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.rules.precision import full_precision
from lethe.train.core.together.weighing import asked_once


class ClippedSums:
    r"""$\sum_i w_i \nabla \ell_i$ with $\|w_i \nabla \ell_i\| \le C$.

    Args:
        groups: of parameters, each with its norm.
        method: how a gradient is brought to it.

    Attributes:
        last_norms: of the gradients that were added last, before clipping, shape (B,), or (B, groups).
    """

    def __init__(self, groups: Sequence[Group], method: Method) -> None:
        self._groups, self._method = groups, method
        self._sums: dict[nn.Parameter, Tensor] = {}
        self._measured: Tensor | None = None
        self._moved: Tensor | None = None
        self.last_norms: Tensor | None = None

    @property
    def measured(self) -> bool | None:
        """Whether any record had a gradient that could be measured; None before there were records."""
        return None if self._measured is None else bool(self._measured)

    @property
    def contributed(self) -> bool | None:
        """Whether any had one that was not 0 either."""
        return None if self._moved is None else bool(self._moved)

    def add_none(self, losses: Tensor) -> None:
        """Note an empty batch."""
        self.last_norms = losses.new_zeros((0,) if len(self._groups) == 1 else (0, len(self._groups)), dtype=torch.float64)

    def add(
        self,
        parts: dict[nn.Parameter, Part],
        losses: Tensor,
        names: Mapping[nn.Parameter, str],
        *,
        counted: Tensor | None,
        unsteady: Tensor | None,
    ) -> None:
        """Add a batch; `parts` is used up.

        Args:
            parts: the gradients of its records, parameter by parameter.
            losses: shape (B,), detached.
            names: of the parameters.
            counted: which records count, shape (B,); None: all.
            unsteady: which records are left to rounding, and add nothing, shape (B,); None: none is.
        """
        members: list[list[nn.Parameter]] = [[] for _ in self._groups]
        for parameter in parts:
            members[group_of(names[parameter], self._groups)].append(parameter)
        # Asked before there is anything that a GPU would have to be waited for.
        anyone = counted is None or bool(counted.any())
        with full_precision():
            owned = [joined(parts, group) for group in members]
            squares = [_squared([part for _, part in group], losses) for group in owned]
            whole = torch.stack(squares).sum(0)
            kept = whole.isfinite()
            kept = kept if unsteady is None else kept & ~unsteady
            kept = kept if counted is None else kept & counted
            added = self._weighed(owned, squares, kept)
        # All at once: a step that failed half-way and is tried again must not count a record twice.
        self._sums = {**self._sums, **added}
        if anyone:
            measured, moved = kept.any(), (kept & (whole > 0)).any()
            self._measured = measured if self._measured is None else self._measured | measured
            self._moved = moved if self._moved is None else self._moved | moved
        norms = torch.stack(squares, dim=1).sqrt()
        self.last_norms = norms[:, 0] if len(self._groups) == 1 else norms

    @contextmanager
    def all_or_nothing(self) -> Generator[None]:
        """Within: what is added stays only if nothing fails, so that who tries again counts no record twice."""
        before = self._sums
        try:
            yield
        except BaseException:
            self._sums = before
            raise

    def take(self, trained: Sequence[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
        """The sums for every trained parameter, float64, 0 where nothing came; starts anew.

        Raises:
            InputError: a parameter with a sum is not among them.
        """
        if lost := len(self._sums.keys() - set(trained)):
            raise InputError(
                f"take: {lost} parameters have a sum and are no longer trained parameters of the model.",
                source="requires_grad, or the parameters themselves, changed since the last backward",
                remedy="freeze, unfreeze or replace parameters between take and the next recording only.",
            )
        sums, self._sums = self._sums, {}
        return {
            parameter: sums[parameter] if parameter in sums else torch.zeros_like(parameter.detach(), dtype=torch.float64)
            for parameter in trained
        }

    def _weighed(self, owned: list[list[Owned]], squares: list[Tensor], kept: Tensor) -> dict[nn.Parameter, Tensor]:
        """The sums with the kept records of this batch added, of its parameters."""
        sums: dict[nn.Parameter, Tensor] = {}
        whole = torch.stack(squares).sum(0)
        for group, held, squared in zip(self._groups, owned, squares, strict=True):
            chosen = [parameter for parameters, _ in held for parameter in parameters]
            if not chosen:
                continue
            coarse = torch.float64 if all(parameter.dtype == torch.float64 for parameter in chosen) else torch.float32
            numbers = sum(parameter.numel() for parameter in chosen)
            slack = _slack([part for _, part in held])
            weights = clip_weights(squared, group, self._method, numbers=numbers, dtype=coarse, slack=slack, whole=whole)
            weights = torch.where(kept, weights, 0.0)
            held.reverse()
            with asked_once(weights):
                while held:  # a part is let go of once it was added
                    parameters, part = held.pop()
                    for parameter, added in zip(parameters, apart(parameters, part.weighted_sum(weights)), strict=True):
                        sums[parameter] = added.add_(self._sums[parameter]) if parameter in self._sums else added
                    del part
        return sums


def _squared(parts: list[Part], losses: Tensor) -> Tensor:
    zeros = torch.zeros_like(losses, dtype=torch.float64)
    return torch.stack([zeros, *(part.squared_norms().to(zeros) for part in parts)]).sum(0).clamp(min=0)


def _slack(parts: list[Part]) -> Tensor | None:
    known = [slack for part in parts if (slack := part.slack()) is not None]
    return torch.stack(known).square().sum(0).sqrt() if known else None

"""The sums of clipped gradients: each record's gradient is measured, brought to the clip norm and added. This is where the sensitivity
bound C (the clip norm) is enforced. `Clipper` passes losses and parts (parts/part.py) of each batch; `Recording` uses `Arriving` to add a
group of parameters while the backward pass still runs. $w_i$ is the factor of record i.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clip.adaptive import AdaptiveNorm
from lethe.train.clip.groups import Group, Method, group_of
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients, as_token_rows
from lethe.train.clip.parts.row_sums import added, no_rows

# How much a computed squared norm may lie below the square of what is added, in eps: 44 where it is a product of two sums of squares
# (`squares_of`), or where what is formed for the sum is brought to what was measured, 22 each; 4 for the roundings of the weight and of
# products with it; and a third as much again. Squares of float64 are summed in float64: one more for each number.
_ROUNDINGS = 64

# A gradient that is 0, such as of a bias before a normalisation, comes out as a few units of rounding of the others.
_ROUNDED_SHARE = 1e3

# Parameters whose rows are measured and added as one: of so many numbers at most.
_SMALL = 2**14


class ClippedSums:
    r"""$\sum_i w_i \nabla \ell_i$ with $\|w_i \nabla \ell_i\| \le C$, in each group of parameters by its own norm; and the count of an
    adaptive norm, under its key."""

    def __init__(
        self,
        groups: Sequence[Group],
        method: Method,
        contributing: Mapping[nn.Parameter, float] | None = None,
        adaptive: AdaptiveNorm | None = None,
    ) -> None:
        self._groups, self._method, self._contributing, self._adaptive = groups, method, contributing or {}, adaptive
        self._places: dict[str, int] = {}
        self.sums: dict[nn.Parameter, Tensor] = {}  # since the last `take`
        self.largest: Tensor | None = None  # of the squared norms of all records that could be measured; -1: of none; None: no records

    @torch.no_grad()
    def add(
        self, parts: Mapping[nn.Parameter, ParameterGradients], names: Mapping[nn.Parameter, str], losses: Tensor, counted: Tensor | None
    ) -> None:
        """Add a batch. Losses and counted have shape (B,); a record whose loss is not finite adds nothing."""
        if len(self._groups) == 1:
            groups = [_measured(parts, losses, self._contributing)]
            whole = groups[0].squared
        else:
            members: list[dict[nn.Parameter, ParameterGradients]] = [{} for _ in self._groups]
            for parameter, part in parts.items():
                members[self._place(names[parameter])][parameter] = part
            groups = [_measured(of_group, losses, self._contributing) for of_group in members]
            whole = torch.stack([group.squared for group in groups]).sum(0)
        reported_losses, counted_rows = whole + losses, None
        if counted is not None or not math.isfinite(reported_losses.sum().item()):  # the only question to the device
            counted_rows = reported_losses.isfinite() if counted is None else reported_losses.isfinite() & counted
            counted_rows = None if bool(counted_rows.all()) else counted_rows
        if counted_rows is not None:
            for group in groups:
                for _, part in group.parts:
                    part.drop(~counted_rows)
        added: dict[nn.Parameter, Tensor] = {}
        for limit, group in zip(self._groups, groups, strict=True):
            smallest_norm = 0.0 if self._adaptive is None else self._adaptive.norm
            factors = clip_weights(
                group.squared, limit, self._method, numbers=group.numbers, dtype=group.dtype, whole=whole, smallest_norm=smallest_norm
            )
            group.give(factors if counted_rows is None else torch.where(counted_rows, factors, 0.0), added, self._contributing)
        if self._adaptive is not None:
            counted = whole > 0 if counted_rows is None else (whole > 0) & counted_rows
            added[self._adaptive.key] = self._adaptive.counts(whole.sqrt(), counted)
        # All at once: a batch that failed half-way and is tried again must not count a record twice.
        self._note(added, whole if counted_rows is None else torch.where(counted_rows, whole, -1.0))

    def arriving(self, names: Mapping[nn.Parameter, str], counted: Tensor | None) -> Arriving:
        """For a batch whose groups are added as their gradients arrive."""
        group_indices = {parameter: self._place(name) for parameter, name in names.items()}
        return Arriving(self._groups, self._method, group_indices, counted, self._contributing)

    @torch.no_grad()
    def add_arrived(self, arrived: Arriving, losses: Tensor) -> bool:
        """Add all that arrived; False: some number is not finite, so that nothing is added, and `add` has to drop its record."""
        zeros = torch.zeros_like(losses, dtype=torch.float64)
        squares = [arrived.squares.get(index, zeros) for index in range(len(self._groups))]
        whole = torch.stack(squares).sum(0)
        if not math.isfinite((whole + losses).sum().item()):  # the only question to the device
            return False
        self._note(arrived.sums, whole if arrived.counted is None else torch.where(arrived.counted, whole, -1.0))
        return True

    def _note(self, added: dict[nn.Parameter, Tensor], whole: Tensor) -> None:
        self.sums = _together(self.sums, added) if self.sums else added
        self.largest = whole.max() if self.largest is None else torch.maximum(self.largest, whole.max())

    @contextmanager
    def all_or_nothing(self) -> Generator[None]:
        """Within: what is added stays only if nothing fails, so that who tries again counts no record twice."""
        before, self.sums = self.sums, {}
        try:
            yield
        except BaseException:
            self.sums = before
            raise
        if before:
            self.sums = _together(before, self.sums)

    def take(self, trained: Sequence[nn.Parameter], *, rows: bool = False) -> dict[nn.Parameter, Tensor]:
        """The sums for every trained parameter, float64, 0 where nothing came; starts anew. `rows`: some as `row_sum` gives them."""
        sums, self.sums = self.sums, {}
        if self._adaptive is not None:
            trained = [*trained, self._adaptive.key]
        ordered = dict[nn.Parameter, Tensor]()  # as the model has them, whichever way they came: noise is drawn in this order
        for parameter in trained:
            total = sums.pop(parameter, None)
            if total is None:
                total = no_rows(parameter, parameter in self._contributing)
            ordered[parameter] = total.to_dense() if total.is_sparse and not rows else total
        if sums:
            raise InputError(
                f"take: {len(sums)} parameters have a sum and are no longer trained parameters of the model.",
                source="requires_grad, or the parameters themselves, changed since the last batch",
                remedy="freeze, unfreeze or replace parameters between two steps only.",
            )
        return ordered

    def _place(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = group_of(name, self._groups)
        return self._places[name]


class ReopenedError(RuntimeError):
    """A gradient arrives in a group that was taken to be complete."""


class Arriving:
    """One batch whose groups are measured, clipped and added one by one, as they are complete: nothing of their parts is kept.

    `group_indices` says the group of each parameter; `squares` and `sums` are of the groups that are complete.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        method: Method,
        group_indices: Mapping[nn.Parameter, int],
        counted: Tensor | None,
        contributing: Mapping[nn.Parameter, float],
    ) -> None:
        self._groups, self._method, self.places, self.counted, self._contributing = groups, method, group_indices, counted, contributing
        self.squares: dict[int, Tensor] = {}
        self.sums: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def add(self, group_index: int, parts: Mapping[nn.Parameter, ParameterGradients]) -> None:
        """Add a group; a ReopenedError where it was added before: clipped twice, a record would count twice."""
        if not parts:
            return
        if group_index in self.squares:
            raise ReopenedError
        group = _measured(parts, contributing=self._contributing)
        weights = clip_weights(group.squared, self._groups[group_index], self._method, numbers=group.numbers, dtype=group.dtype)
        group.give(weights if self.counted is None else torch.where(self.counted, weights, 0.0), self.sums, self._contributing)
        self.squares[group_index] = group.squared


class _Measured(NamedTuple):
    """The gradients in a group of parameters, of small ones side by side, which takes less time, and their squared norms, shape (B,);
    how many `numbers` one record's gradient has, and the coarsest type in which any is formed.
    """

    parts: list[tuple[list[nn.Parameter], ParameterGradients]]
    squared: Tensor
    numbers: int
    dtype: torch.dtype

    def give(self, weights: Tensor, sums: dict[nn.Parameter, Tensor], contributing: Mapping[nn.Parameter, float]) -> None:
        """Note the weighted sum of each parameter, and what records contribute to the rows of those that are in `contributing`."""
        for parameters, part in self.parts:
            if parameters[0] in contributing:
                sums[parameters[0]] = as_token_rows(part).contributing(weights, contributing[parameters[0]])
                continue
            total = part.weighted(weights)
            if len(parameters) == 1:
                sums[parameters[0]] = total if total.is_sparse else total.view(parameters[0].shape)
                continue
            first = 0
            for parameter in parameters:
                sums[parameter] = total[first : first + parameter.numel()].view(parameter.shape)
                first += parameter.numel()


def _measured(
    parts: Mapping[nn.Parameter, ParameterGradients], losses: Tensor | None = None, contributing: Collection[nn.Parameter] = ()
) -> _Measured:
    """A group; given the records' losses, it may have no parameters."""
    joined: list[tuple[list[nn.Parameter], ParameterGradients]] = []
    small: dict[torch.dtype, tuple[list[nn.Parameter], list[Tensor]]] = {}
    squares, numbers, dtype = list[Tensor](), 0, torch.float64
    for parameter, part in parts.items():
        numbers += parameter.numel()
        dtype = dtype if part.dtype == torch.float64 else part.dtype
        if isinstance(part, MaterialisedGradients) and parameter.numel() <= _SMALL and parameter not in contributing:
            members, rows = small.setdefault(part.dtype, ([], []))
            members.append(parameter)
            rows.append(part.gradients if part.gradients.dim() == 2 else part.gradients.flatten(1))
        else:
            joined.append(([parameter], part))
    for members, rows in small.values():
        joined.append((members, MaterialisedGradients(rows[0] if len(rows) == 1 else torch.cat(rows, dim=1))))
    for _, part in joined:
        squares.append(part.squares())
    if losses is not None and not squares:
        squares.append(torch.zeros_like(losses, dtype=torch.float64))
    return _Measured(joined, squares[0] if len(squares) == 1 else torch.stack(squares).sum(0), numbers, dtype)


def clip_weights(
    squared: Tensor,
    group: Group,
    method: Method,
    *,
    numbers: int,
    dtype: torch.dtype,
    whole: Tensor | None = None,
    smallest_norm: float = 0.0,
) -> Tensor:
    r"""$w_i$ such that $w_i v_i$ has norm at most $C_k$, rounding errors included.

    The norm enters as an upper bound of the true norm: enlarged by what rounding may have taken from it, and by what may have vanished
    below the smallest number of the arithmetic. Where the norm is not finite the weight has no meaning. Squares have shape (B,); `numbers`:
    how many v has; `dtype`: of their sum; `whole`: the squared norm in all groups. Lengths below `smallest_norm`, an
    adaptive norm, count as it: $v_i$ clipped to it then has norm C. Where a method enlarges, a group's share
    of it that rounding could have made counts as longer than it is: rounding changes with the batch, so with other records.
    """
    limits = torch.finfo(dtype)
    roundings = _ROUNDINGS + numbers if dtype == torch.float64 else _ROUNDINGS
    lengths = (squared * (1 + roundings * limits.eps)).add_(4 * numbers * limits.tiny).sqrt_()
    if method.enlarges and whole is not None:
        lengths = torch.maximum(lengths, _ROUNDED_SHARE * limits.eps * whole.nan_to_num(nan=math.inf).sqrt())
    weights = group.clip_norm / (lengths + method.stability if method.stability else lengths)
    if smallest_norm > 0.0:
        return weights.clamp_(max=group.clip_norm / smallest_norm)
    if method.projection:
        return weights.clamp_(max=1.0)
    return torch.where(squared > 0, weights, weights.clamp(max=1.0)) if method.enlarges else weights


def _together(first: dict[nn.Parameter, Tensor], second: dict[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
    """The sums of both; those of the first may be written to."""
    rows = {parameter: added(first[parameter], total) for parameter, total in second.items() if parameter in first and total.is_sparse}
    rows |= {parameter: added(total, second[parameter]) for parameter, total in first.items() if parameter in second and total.is_sparse}
    if both := [parameter for parameter in second if parameter in first and parameter not in rows]:
        torch._foreach_add_([first[parameter] for parameter in both], [second[parameter] for parameter in both])  # pyright: ignore[reportPrivateImportUsage]
    return second | first | rows

"""The sums of clipped gradients: each record's gradient is measured, brought to the clip norm and added."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clip.groups import Group, Method, clip_weights, group_of
from lethe.train.clip.parts.part import Part, Rows

# Parameters whose rows are measured and added as one: of so many numbers at most.
_SMALL = 2**14


class ClippedSums:
    r"""$\sum_i w_i \nabla \ell_i$ with $\|w_i \nabla \ell_i\| \le C$, in each group of parameters by its own norm."""

    def __init__(self, groups: Sequence[Group], method: Method) -> None:
        self._groups, self._method = groups, method
        self._places: dict[str, int] = {}
        self._sums: dict[nn.Parameter, Tensor] = {}
        self.largest: Tensor | None = None  # of the squared norms of all records that could be measured; -1: of none; None: no records

    @property
    def begun(self) -> bool:
        """Whether anything was added since the last `take`."""
        return bool(self._sums)

    @torch.no_grad()
    def add(self, parts: Mapping[nn.Parameter, Part], names: Mapping[nn.Parameter, str], losses: Tensor, counted: Tensor | None) -> None:
        """Add a batch.

        Args:
            parts: the gradients of its records, parameter by parameter.
            names: of the parameters.
            losses: of the records, shape (B,): where one is not finite, its record adds nothing.
            counted: which records count, shape (B,), bool; None: all.
        """
        zeros = torch.zeros_like(losses, dtype=torch.float64)
        groups = [_joined(members) for members in self._members(parts, names)]
        squares = [_measured(group, [zeros]) for group in groups]
        whole = squares[0] if len(squares) == 1 else torch.stack(squares).sum(0)
        kept = (whole + losses).isfinite()
        kept = kept if counted is None else kept & counted
        every = bool(kept.all())  # the only question to the device
        if not every:
            for group in groups:
                for joined in group:
                    joined.part.drop(~kept)
        added: dict[nn.Parameter, Tensor] = {}
        for limit, group, squared in zip(self._groups, groups, squares, strict=True):
            factors = _weights(limit, self._method, group)(squared, whole=whole)
            weights = factors if every else torch.where(kept, factors, 0.0)
            for joined in group:
                joined.give(joined.part.weighted(weights), added)
        # All at once: a batch that failed half-way and is tried again must not count a record twice.
        self._note(added, whole if every else torch.where(kept, whole, -1.0))

    def arriving(self, names: Mapping[nn.Parameter, str], counted: Tensor | None) -> Arriving | None:
        """For a batch whose groups are added as their gradients arrive; None: one group, or a method that needs the norm of all."""
        if len(self._groups) == 1 or self._method.enlarges:
            return None
        places = {parameter: self._place(name) for parameter, name in names.items()}
        return Arriving(self._groups, self._method, places, counted)

    @torch.no_grad()
    def add_arrived(self, arrived: Arriving, losses: Tensor) -> bool:
        """Add all that arrived; False: some number is not finite, so that nothing is added, and `add` has to drop its record."""
        zeros = torch.zeros_like(losses, dtype=torch.float64)
        squares = [arrived.squares.get(place, zeros) for place in range(len(self._groups))]
        whole = torch.stack(squares).sum(0)
        if not bool((whole + losses).isfinite().all()):  # the only question to the device
            return False
        self._note(arrived.sums, whole if arrived.counted is None else torch.where(arrived.counted, whole, -1.0))
        return True

    def _note(self, added: dict[nn.Parameter, Tensor], whole: Tensor) -> None:
        self._sums = _together(self._sums, added)
        self.largest = whole.max() if self.largest is None else torch.maximum(self.largest, whole.max())

    @contextmanager
    def all_or_nothing(self) -> Generator[None]:
        """Within: what is added stays only if nothing fails, so that who tries again counts no record twice."""
        before, self._sums = self._sums, {}
        try:
            yield
        except BaseException:
            self._sums = before
            raise
        self._sums = _together(before, self._sums)

    def take(self, trained: Sequence[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
        """The sums for every trained parameter, float64, 0 where nothing came; starts anew.

        Raises:
            InputError: a parameter with a sum is not among them.
        """
        if lost := len(self._sums.keys() - set(trained)):
            raise InputError(
                f"take: {lost} parameters have a sum and are no longer trained parameters of the model.",
                source="requires_grad, or the parameters themselves, changed since the last batch",
                remedy="freeze, unfreeze or replace parameters between two steps only.",
            )
        sums, self._sums = self._sums, {}
        ordered = dict[nn.Parameter, Tensor]()  # as the model has them, whichever way they came: noise is drawn in this order
        for parameter in trained:
            ordered[parameter] = sums[parameter] if parameter in sums else torch.zeros_like(parameter.detach(), dtype=torch.float64)
        return ordered

    def _members(self, parts: Mapping[nn.Parameter, Part], names: Mapping[nn.Parameter, str]) -> list[list[tuple[nn.Parameter, Part]]]:
        if len(self._groups) == 1:
            return [list(parts.items())]
        members: list[list[tuple[nn.Parameter, Part]]] = [[] for _ in self._groups]
        for parameter, part in parts.items():
            members[self._place(names[parameter])].append((parameter, part))
        return members

    def _place(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = group_of(name, self._groups)
        return self._places[name]


class ReopenedError(RuntimeError):
    """A gradient arrives in a group that was taken to be complete."""


class Arriving:
    """One batch whose groups are measured, clipped and added one by one, as they are complete: nothing of their parts is kept.

    Attributes:
        places: of the parameters, the group of each.
        counted: which records count; None: all.
        squares: the squared norms in each group that is complete.
        sums: of its parameters.
    """

    def __init__(self, groups: Sequence[Group], method: Method, places: Mapping[nn.Parameter, int], counted: Tensor | None) -> None:
        self._groups, self._method, self.places, self.counted = groups, method, places, counted
        self.squares: dict[int, Tensor] = {}
        self.sums: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def add(self, place: int, parts: Mapping[nn.Parameter, Part]) -> None:
        """Add a group; a ReopenedError where it was added before: clipped twice, a record would count twice."""
        if not parts:
            return
        if place in self.squares:
            raise ReopenedError
        group = _joined(parts.items())
        squared = _measured(group)
        weights = _weights(self._groups[place], self._method, group)(squared)
        weights = weights if self.counted is None else torch.where(self.counted, weights, 0.0)
        for joined in group:
            joined.give(joined.part.weighted(weights), self.sums)
        self.squares[place] = squared


class _Joined(NamedTuple):
    """Parameters, one or several small ones, whose gradients side by side are one part: fewer operations take less time."""

    parameters: Sequence[nn.Parameter]
    part: Part
    numbers: int

    def give(self, total: Tensor, sums: dict[nn.Parameter, Tensor]) -> None:
        """Note the sum of each parameter."""
        if len(self.parameters) == 1:
            sums[self.parameters[0]] = total.view(self.parameters[0].shape)
            return
        first = 0
        for parameter in self.parameters:
            sums[parameter] = total[first : first + parameter.numel()].view(parameter.shape)
            first += parameter.numel()


def _measured(group: Sequence[_Joined], zeros: Sequence[Tensor] = ()) -> Tensor:
    """The squared norms in a group, shape (B,)."""
    squares = [*zeros, *(joined.part.squares() for joined in group)]
    return squares[0] if len(squares) == 1 else torch.stack(squares).sum(0)


def _weights(limit: Group, method: Method, group: Sequence[_Joined]) -> Callable[..., Tensor]:
    """The weights of records, of their squared norms in a group."""
    coarse = next((joined.part.dtype for joined in group if joined.part.dtype != torch.float64), torch.float64)
    return partial(clip_weights, group=limit, method=method, numbers=sum(joined.numbers for joined in group), dtype=coarse)


def _joined(parts: Iterable[tuple[nn.Parameter, Part]]) -> list[_Joined]:
    joined: list[_Joined] = []
    small: dict[torch.dtype, tuple[list[nn.Parameter], list[Tensor]]] = {}
    for parameter, part in parts:
        numbers = parameter.numel()
        if isinstance(part, Rows) and numbers <= _SMALL:
            members, rows = small.setdefault(part.gradients.dtype, ([], []))
            members.append(parameter)
            rows.append(part.gradients if part.gradients.dim() == 2 else part.gradients.flatten(1))
        else:
            joined.append(_Joined([parameter], part, numbers))
    for members, rows in small.values():
        together = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        joined.append(_Joined(members, Rows(together), together.shape[1]))
    return joined


def _together(one: dict[nn.Parameter, Tensor], other: dict[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
    """The sums of both; those of the first may be written to."""
    if not one or not other:
        return one or other
    if both := [parameter for parameter in other if parameter in one]:
        torch._foreach_add_([one[parameter] for parameter in both], [other[parameter] for parameter in both])  # pyright: ignore[reportPrivateImportUsage]
    return other | one

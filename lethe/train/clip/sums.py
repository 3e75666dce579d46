"""The sums of clipped gradients: each record's gradient is measured, brought to the clip norm and added."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clip.groups import Group, Method, clip_weights, group_of
from lethe.train.clip.parts import Part, Rows

# Parameters whose rows are measured and added as one: of so many numbers at most.
_SMALL = 2**14


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
        self._places: dict[str, int] = {}
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

    def add(self, parts: Mapping[nn.Parameter, Part], names: Mapping[nn.Parameter, str], losses: Tensor, counted: Tensor | None) -> None:
        """Add a batch.

        Args:
            parts: the gradients of its records, parameter by parameter.
            names: of the parameters.
            losses: of the records, shape (B,): where one is not finite, its record adds nothing.
            counted: which records count, shape (B,), bool; None: all.
        """
        if not len(losses):
            return
        groups = [self._joined(members) for members in self._members(parts, names)]
        zeros = torch.zeros_like(losses, dtype=torch.float64)
        squares = [torch.stack([zeros, *(part.squares() for _, part in group)]).sum(0) for group in groups]
        whole = squares[0] if len(squares) == 1 else torch.stack(squares).sum(0)
        kept = whole.isfinite() & losses.isfinite()
        kept = kept if counted is None else kept & counted
        if not bool(kept.all()):  # the only question to the device
            for group in groups:
                for _, part in group:
                    part.drop(~kept)
        added: dict[nn.Parameter, Tensor] = {}
        for group, parameters, squared in zip(self._groups, groups, squares, strict=True):
            weights = torch.where(kept, self._weights(group, parameters, squared, whole), 0.0)
            for members, part in parameters:
                total = part.weighted(weights)
                pieces = [total] if len(members) == 1 else total.split([parameter.numel() for parameter in members])
                added |= {parameter: piece.reshape(parameter.shape) for parameter, piece in zip(members, pieces, strict=True)}
        # All at once: a batch that failed half-way and is tried again must not count a record twice.
        known = [parameter for parameter in added if parameter in self._sums]
        if known:
            torch._foreach_add_([self._sums[parameter] for parameter in known], [added[parameter] for parameter in known])  # pyright: ignore
        self._sums |= {parameter: tensor for parameter, tensor in added.items() if parameter not in self._sums}
        measured, moved = kept.any(), (kept & (whole > 0)).any()
        self._measured = measured if self._measured is None else self._measured | measured
        self._moved = moved if self._moved is None else self._moved | moved
        self.last_norms = whole.sqrt() if len(squares) == 1 else torch.stack(squares, dim=1).sqrt()

    @contextmanager
    def all_or_nothing(self) -> Generator[None]:
        """Within: what is added stays only if nothing fails, so that who tries again counts no record twice."""
        before, self._sums = self._sums, {}
        try:
            yield
        except BaseException:
            self._sums = before
            raise
        for parameter, tensor in before.items():
            self._sums[parameter] = self._sums[parameter].add_(tensor) if parameter in self._sums else tensor

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
        return {
            parameter: sums[parameter] if parameter in sums else torch.zeros_like(parameter.detach(), dtype=torch.float64)
            for parameter in trained
        }

    def _members(self, parts: Mapping[nn.Parameter, Part], names: Mapping[nn.Parameter, str]) -> list[list[tuple[nn.Parameter, Part]]]:
        if len(self._groups) == 1:
            return [list(parts.items())]
        members: list[list[tuple[nn.Parameter, Part]]] = [[] for _ in self._groups]
        for parameter, part in parts.items():
            name = names[parameter]
            if name not in self._places:
                self._places[name] = group_of(name, self._groups)
            members[self._places[name]].append((parameter, part))
        return members

    @staticmethod
    def _joined(parts: list[tuple[nn.Parameter, Part]]) -> list[tuple[list[nn.Parameter], Part]]:
        """Small parameters of one type together: what takes time is how many operations there are."""
        joined: list[tuple[list[nn.Parameter], Part]] = []
        small: dict[torch.dtype, list[tuple[nn.Parameter, Tensor]]] = {}
        for parameter, part in parts:
            if isinstance(part, Rows) and parameter.numel() <= _SMALL:
                small.setdefault(part.gradients.dtype, []).append((parameter, part.gradients))
            else:
                joined.append(([parameter], part))
        for members in small.values():
            rows = [gradients.flatten(1) if gradients.dim() != 2 else gradients for _, gradients in members]
            joined.append(([parameter for parameter, _ in members], Rows(rows[0] if len(rows) == 1 else torch.cat(rows, dim=1))))
        return joined

    def _weights(self, group: Group, parts: list[tuple[list[nn.Parameter], Part]], squared: Tensor, whole: Tensor) -> Tensor:
        coarse = torch.float64 if all(part.dtype == torch.float64 for _, part in parts) else torch.float32
        numbers = sum(parameter.numel() for parameters, _ in parts for parameter in parameters)
        return clip_weights(squared, group, self._method, numbers=numbers, dtype=coarse, whole=whole)

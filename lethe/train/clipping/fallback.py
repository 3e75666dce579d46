"""Per-record gradients of parameters without a layer rule, by following the autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from lethe.train.clipping.anchors import Anchor, Untouched
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.records.again import Meeting, Operation, computed_again, name_of, pulled_back
from lethe.train.clipping.records.folds import Folds
from lethe.train.clipping.rules.rule import wide
from lethe.train.clipping.unfollowed import UnfollowedError

# Operations that treat every entry of their broadcast arguments alone.
_ENTRYWISE = frozenset(
    """
    add sub rsub subtract mul multiply div divide true_divide truediv pow float_power where maximum minimum fmax fmin lerp addcmul addcdiv
    atan2 hypot logaddexp logaddexp2 clamp clip copysign eq ne lt le gt ge
    """.split()  # noqa: SIM905
)
_EXPANDING = frozenset(("expand", "expand_as", "repeat", "broadcast_to", "tile"))


class RecordFree(Tensor):
    """A tensor that no record has entered: a parameter, or what was computed from parameters and constants alone."""

    tape: Tape

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Hand every operation to the tape."""
        flat, spec = tree_flatten((args, kwargs or {}))
        tape = next(entry.tape for entry in flat if isinstance(entry, RecordFree))
        with torch._C.DisableTorchFunctionSubclass():
            return tape.apply(func, flat, spec)


class Tape:
    """The operations on parameters without a layer rule in one recording.

    A record-free tensor stays one while only constants join it. Where it meets the records in an entrywise operation, or is expanded to
    their number, it is given one copy a record, whose gradients are the records' own. Any other operation that meets them is computed
    again in the backward pass, under torch.func.vmap, record by record.

    Args:
        records: B, or None if it is not known.
        decisions: which arguments were records in earlier recordings.
        attached: leave copies in the graph of their parameter, so that plain autograd can check the result.
        anchor: a scalar that requires grad.
        constant: whether a tensor is known to hold no records, whatever its length.
        folds: tells tensors that hold several rows of each record.
    """

    def __init__(
        self,
        records: Callable[[], int | None],
        decisions: Decisions,
        *,
        attached: bool,
        anchor: Tensor,
        folds: Folds,
        constant: Callable[[Tensor], bool] = lambda tensor: False,
    ) -> None:
        self._records = records
        self._decisions = decisions
        self.attached = attached
        self._anchor = anchor
        self._constant, self._folds = constant, folds
        self.aliases: dict[nn.Parameter, Tensor] = {}
        self._meetings: list[Meeting] = []
        self._operations: list[Operation] = []

    def alias(self, parameter: nn.Parameter) -> RecordFree:
        """The stand-in for a parameter while its module computes."""
        if parameter not in self.aliases:
            self.aliases[parameter] = parameter if self.attached else parameter.detach().requires_grad_()
        return self._free(self.aliases[parameter])

    def _free(self, tensor: Tensor) -> RecordFree:
        free = tensor.as_subclass(RecordFree)
        free.tape = self
        return free

    def apply(self, function: Any, flat: list[Any], spec: TreeSpec) -> Any:
        """Carry out one operation that has record-free arguments.

        Args:
            function: of torch.
            flat: its arguments, flattened.
            spec: how they were nested.
        """
        name = name_of(function)
        free = [place for place, entry in enumerate(flat) if isinstance(entry, RecordFree)]
        others = [place for place, entry in enumerate(flat) if isinstance(entry, Tensor) and place not in free]
        plain = [entry.as_subclass(Tensor) if isinstance(entry, RecordFree) else entry for entry in flat]
        if not torch.is_grad_enabled():  # no gradient passes here; a function of one's own that gets one shows as a leak
            args, kwargs = tree_unflatten(plain, spec)
            return function(*args, **kwargs)
        kind = name.strip("_").removesuffix("_")
        meeting, rows = self._meeting(name, plain, free, others) if others else ([], 1)
        if name == "__setitem__" or (_in_place(name) and free[0] == 0 and (meeting or plain[0]._base is None or plain[0]._base.is_leaf)):
            raise UnfollowedError(
                f"{name} writes a parameter, or into one, in place; its records' gradients cannot be told apart.",
                source="a module whose own parameters no rule covers",
                remedy="write torch.where, or an operation that is not in place.",
            )
        if meeting:
            if kind in _ENTRYWISE or kind[1:] in _ENTRYWISE:
                return self._entrywise(function, plain, spec, free, meeting, rows)
            return self._again(function, plain, spec, free, meeting, rows)
        return self._without_records(function, kind, plain, spec)

    def _meeting(self, name: str, plain: list[Any], free: list[int], others: list[int]) -> tuple[list[int], int]:
        """The places of those arguments that hold records, and how many rows of each."""
        records = self._records()
        tensors = [plain[place] for place in others]
        rows = [self._rows(tensor, records) for tensor in tensors]
        fits = [count > 0 for count in rows]
        ranks = tuple(plain[place].dim() for place in (*free, *others))
        chosen = self._decisions.settle((name, ranks), fits, records)
        for tensor, fit in zip(tensors, chosen, strict=True):
            if tensor.requires_grad and not fit:
                raise UnfollowedError(
                    f"{name} joins a parameter to a tensor of shape {tuple(tensor.shape)}; it needs the {records} records first.",
                    source="a module whose own parameters no rule covers",
                    remedy="keep records along the first dimension, or name their number: recording(records=...).",
                )
        found = {count for count, fit in zip(rows, chosen, strict=True) if fit}
        if len(found) > 1:
            raise UnfollowedError(
                f"{name} joins a parameter to tensors of {' and '.join(map(str, sorted(found)))} rows of each record.",
                source="a module whose own parameters no rule covers",
                remedy="keep records along the first dimension.",
            )
        return [place for place, fit in zip(others, chosen, strict=True) if fit], found.pop() if found else 1

    def _rows(self, tensor: Tensor, records: int | None) -> int:
        """How many rows of each record a tensor holds; 0: none."""
        if tensor.dim() == 0 or self._constant(tensor):
            return 0
        return 1 if tensor.shape[0] == records else self._folds.fold(tensor) or 0

    def _without_records(self, function: Any, kind: str, plain: list[Any], spec: TreeSpec) -> Any:
        args, kwargs = tree_unflatten(plain, spec)
        result = function(*args, **kwargs)
        if kind in _EXPANDING and isinstance(plain[0], Tensor):
            source, records = plain[0], self._records()
            grown = result.dim() > source.dim() or source.shape[:1] == (1,)
            fits = [grown and result.shape[0] == records]
            if self._decisions.settle((kind, (source.dim(), result.dim())), fits, records)[0]:
                return self._copies(result[:1], result.dim()) if records else result
        return self._wrapped(result)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, Tensor):
            return self._free(result)
        if isinstance(result, tuple | list) and any(isinstance(entry, Tensor) for entry in result):
            entries = [self._wrapped(entry) for entry in result]
            return type(result)(*entries) if hasattr(result, "_fields") else type(result)(entries)
        return result

    def _entrywise(self, function: Any, plain: list[Any], spec: TreeSpec, free: list[int], meeting: list[int], rows: int) -> Any:
        rank = max(entry.dim() for entry in plain if isinstance(entry, Tensor))
        for place in meeting:
            if plain[place].dim() != rank:
                raise self._crossed(plain[place], rank)
        entries = list(plain)
        for place in free:
            entries[place] = self._copies(plain[place], rank, rows)
        args, kwargs = tree_unflatten(entries, spec)
        return function(*args, **kwargs)

    def _copies(self, source: Tensor, rank: int, rows: int = 1) -> Tensor:
        """One copy a record, of `rank` dimensions, broadcasting as the source does, and repeated for each of the record's rows."""
        if source.dim() == rank and source.shape[0] != 1:
            raise self._crossed(source, rank)
        rest = source.shape if source.dim() < rank else source.shape[1:]
        records = self._records()
        assert records is not None
        copies = source.reshape(1, *[1] * (rank - 1 - len(rest)), *rest).expand(records, *[-1] * (rank - 1))
        if source.requires_grad:
            if not self.attached:
                copies = copies.detach().requires_grad_()
            self._meetings.append(Meeting(source, copies, Untouched([source])))
        return copies if rows == 1 else copies.unsqueeze(1).expand(-1, rows, *[-1] * (rank - 1)).flatten(0, 1)

    def _crossed(self, tensor: Tensor, rank: int) -> UnfollowedError:
        return UnfollowedError(
            f"a tensor of shape {tuple(tensor.shape)} meets another of {rank} dimensions, "
            f"and {self._records()} records cannot be told apart.",
            source="a module whose own parameters no rule covers",
            remedy="keep records along the first dimension, and the parameter's first dimension of length 1.",
        )

    def _again(self, function: Any, plain: list[Any], spec: TreeSpec, free: list[int], meeting: list[int], rows: int) -> Any:
        entries = [
            entry.detach() if isinstance(entry, Tensor) and place in free and not self.attached else entry
            for place, entry in enumerate(plain)
        ]
        args, kwargs = tree_unflatten(entries, spec)
        output = function(*args, **kwargs)
        name = name_of(function)
        if not isinstance(output, Tensor) or output.shape[:1] != ((self._records() or 0) * rows,) or _in_place(name):
            raise UnfollowedError(
                f"{name} on a parameter gave {_described(output)}; it needs one new tensor with the {self._records()} records first.",
                source="a module whose own parameters no rule covers",
                remedy="keep records along the first dimension, or register a rule for the module: lethe.train.clipping.register_rule.",
            )
        sources = [plain[place] for place in free]
        if not any(source.requires_grad for source in sources):
            return output
        output = Anchor.hold(output, self._anchor, plain)
        self._operations.append(
            Operation(
                function=function,
                arguments=[entry.detach() if isinstance(entry, Tensor) else entry for entry in plain],
                spec=spec,
                free=free,
                sources=sources,
                records=meeting,
                rows=rows,
                edge=get_gradient_edge(output),
                untouched=Untouched([plain[place] for place in meeting]),
            )
        )
        self._folds.note(self._operations[-1].edge)
        return output

    def with_records(self, losses: Tensor) -> Tensor:
        """Losses that no record entered, as the one record's own; any others as they are.

        Raises:
            InputError: several losses that no record entered.
        """
        if not isinstance(losses, RecordFree):
            return losses
        if self._records() not in (0, 1):
            raise UnfollowedError(
                f"losses: {len(losses)} losses were computed from parameters alone, and their records cannot be told apart.",
                remedy="add to each record's own loss what depends on parameters alone, or leave it out. Where the model is given several "
                "rows a record, as real and generated ones together, let these lie side by side in one record, in a tensor of shape "
                "(B, 2, ...), not one after another as torch.cat([real, fake]) does.",
            )
        with torch._C.DisableTorchFunctionSubclass():
            return self._copies(losses.as_subclass(Tensor), 1)

    def wanted(self) -> list[Tensor | GradientEdge]:
        """The tensors whose gradients the backward pass must compute, for `gradients`."""
        return [*(meeting.copies for meeting in self._meetings), *(operation.edge for operation in self._operations)]

    def sources(self) -> list[Tensor]:
        """What `gradients` tells of: stand-ins of parameters, and what was computed from these."""
        return [*(meeting.source for meeting in self._meetings), *(source for one in self._operations for source in one.sources)]

    def sites(self) -> list[tuple[Tensor | GradientEdge, int]]:
        """`wanted`, each with how many rows of a record it has."""
        return [*((meeting.copies, 1) for meeting in self._meetings), *((operation.edge, operation.rows) for operation in self._operations)]

    def gradients(self, told: Sequence[Tensor | None]) -> dict[nn.Parameter, Tensor]:
        """Each parameter's gradients, shape (B, *shape), from the gradients of `wanted`; parameters without any are left out."""
        if len(told) != len(self._meetings) + len(self._operations):
            raise UnfollowedError(
                "a parameter was used again in the backward pass, as by an autograd.Function: its records cannot be told apart.",
                source="a module whose own parameters no rule covers",
                remedy="register a rule for the module: lethe.train.clipping.register_rule.",
            )
        totals: dict[nn.Parameter, Tensor] = {}
        parameters, aliases = list(self.aliases), list(self.aliases.values())
        for source, gradient in self._at_sources(told):
            for parameter, part in zip(parameters, pulled_back(source, aliases, gradient), strict=True):
                if part is not None:
                    totals[parameter] = totals[parameter] + part if parameter in totals else part
        return totals

    def _at_sources(self, told: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        count = len(self._meetings)
        found: list[tuple[Tensor, Tensor]] = []
        for meeting, gradient in zip(self._meetings, told[:count], strict=True):
            if gradient is not None:
                meeting.untouched.require("a module whose own parameters no rule covers")
                found.append((meeting.source, wide(gradient).reshape(len(gradient), *meeting.source.shape)))
        for operation, gradient in zip(self._operations, told[count:], strict=True):
            if gradient is not None:
                operation.untouched.require("a module whose own parameters no rule covers")
                pairs = zip(operation.sources, computed_again(operation, gradient), strict=True)
                found += [pair for pair in pairs if pair[0].requires_grad]
        return found


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _described(output: Any) -> str:
    return f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__

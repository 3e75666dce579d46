"""Per-record gradients of parameters without a layer rule, by following the autograd graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from lethe.train.clipping.anchors import Anchor, Untouched
from lethe.train.clipping.decisions import Decisions
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


@dataclass(frozen=True, slots=True, eq=False)
class _Meeting:
    """Where record-free tensors entered an operation as one copy a record; `copies` has shape (B, ...)."""

    source: Tensor
    copies: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Operation:
    """One operation on records and record-free tensors that is computed again, record by record, for its gradient."""

    function: Any
    arguments: Sequence[Any]
    spec: TreeSpec
    free: Sequence[int]
    sources: Sequence[Tensor]
    records: Sequence[int]
    edge: GradientEdge
    untouched: Untouched


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
    """

    def __init__(
        self,
        records: Callable[[], int | None],
        decisions: Decisions,
        *,
        attached: bool,
        anchor: Tensor,
        constant: Callable[[Tensor], bool] = lambda tensor: False,
    ) -> None:
        self._records = records
        self._decisions = decisions
        self.attached = attached
        self._anchor = anchor
        self._constant = constant
        self.aliases: dict[nn.Parameter, Tensor] = {}
        self._meetings: list[_Meeting] = []
        self._operations: list[_Operation] = []

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
        name = _name(function)
        free = [place for place, entry in enumerate(flat) if isinstance(entry, RecordFree)]
        others = [place for place, entry in enumerate(flat) if isinstance(entry, Tensor) and place not in free]
        plain = [entry.as_subclass(Tensor) if isinstance(entry, RecordFree) else entry for entry in flat]
        if not torch.is_grad_enabled():  # no gradient passes here; a function of one's own that gets one shows as a leak
            args, kwargs = tree_unflatten(plain, spec)
            return function(*args, **kwargs)
        kind = name.strip("_").removesuffix("_")
        if name == "__setitem__" or (_in_place(name) and free[0] == 0):
            raise UnfollowedError(
                f"{name} writes a parameter, or into one, in place; its records' gradients cannot be told apart.",
                source="a module whose own parameters no rule covers",
                remedy="write torch.where, or an operation that is not in place.",
            )
        meeting = self._meeting(name, plain, free, others) if others else []
        if meeting:
            if kind in _ENTRYWISE or kind[1:] in _ENTRYWISE:
                return self._entrywise(function, plain, spec, free, meeting)
            return self._again(function, plain, spec, free, meeting)
        return self._without_records(function, kind, plain, spec)

    def _meeting(self, name: str, plain: list[Any], free: list[int], others: list[int]) -> list[int]:
        """The places of those arguments that hold records."""
        records = self._records()
        tensors = [plain[place] for place in others]
        fits = [tensor.dim() > 0 and tensor.shape[0] == records and not self._constant(tensor) for tensor in tensors]
        ranks = tuple(plain[place].dim() for place in (*free, *others))
        chosen = self._decisions.settle((name, ranks), fits, records)
        for tensor, fit in zip(tensors, chosen, strict=True):
            if tensor.requires_grad and not fit:
                raise UnfollowedError(
                    f"{name} joins a parameter to a tensor of shape {tuple(tensor.shape)}; it needs the {records} records first.",
                    source="a module whose own parameters no rule covers",
                    remedy="keep records along the first dimension, or name their number: recording(records=...).",
                )
        return [place for place, fit in zip(others, chosen, strict=True) if fit]

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

    def _entrywise(self, function: Any, plain: list[Any], spec: TreeSpec, free: list[int], meeting: list[int]) -> Any:
        rank = max(entry.dim() for entry in plain if isinstance(entry, Tensor))
        for place in meeting:
            if plain[place].dim() != rank:
                raise self._crossed(plain[place], rank)
        entries = list(plain)
        for place in free:
            entries[place] = self._copies(plain[place], rank)
        args, kwargs = tree_unflatten(entries, spec)
        return function(*args, **kwargs)

    def _copies(self, source: Tensor, rank: int) -> Tensor:
        """One copy a record, of `rank` dimensions, broadcasting as the source does."""
        if source.dim() == rank and source.shape[0] != 1:
            raise self._crossed(source, rank)
        rest = source.shape if source.dim() < rank else source.shape[1:]
        records = self._records()
        assert records is not None
        copies = source.reshape(1, *[1] * (rank - 1 - len(rest)), *rest).expand(records, *[-1] * (rank - 1))
        if not source.requires_grad:
            return copies
        if not self.attached:
            copies = copies.detach().requires_grad_()
        self._meetings.append(_Meeting(source, copies))
        return copies

    def _crossed(self, tensor: Tensor, rank: int) -> UnfollowedError:
        return UnfollowedError(
            f"a tensor of shape {tuple(tensor.shape)} meets another of {rank} dimensions, "
            f"and {self._records()} records cannot be told apart.",
            source="a module whose own parameters no rule covers",
            remedy="keep records along the first dimension, and the parameter's first dimension of length 1.",
        )

    def _again(self, function: Any, plain: list[Any], spec: TreeSpec, free: list[int], meeting: list[int]) -> Any:
        entries = [
            entry.detach() if isinstance(entry, Tensor) and place in free and not self.attached else entry
            for place, entry in enumerate(plain)
        ]
        args, kwargs = tree_unflatten(entries, spec)
        output = function(*args, **kwargs)
        name = _name(function)
        if not isinstance(output, Tensor) or output.shape[:1] != (self._records(),) or _in_place(name):
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
            _Operation(
                function=function,
                arguments=[entry.detach() if isinstance(entry, Tensor) else entry for entry in plain],
                spec=spec,
                free=free,
                sources=sources,
                records=meeting,
                edge=get_gradient_edge(output),
                untouched=Untouched([plain[place] for place in meeting]),
            )
        )
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
                remedy="add to each record's own loss what depends on parameters alone, or leave it out.",
            )
        with torch._C.DisableTorchFunctionSubclass():
            return self._copies(losses.as_subclass(Tensor), 1)

    def wanted(self) -> list[Tensor | GradientEdge]:
        """The tensors whose gradients the backward pass must compute, for `gradients`."""
        return [*(meeting.copies for meeting in self._meetings), *(operation.edge for operation in self._operations)]

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
            for parameter, part in zip(parameters, _pulled_back(source, aliases, gradient), strict=True):
                if part is not None:
                    totals[parameter] = totals[parameter] + part if parameter in totals else part
        return totals

    def _at_sources(self, told: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        count = len(self._meetings)
        found: list[tuple[Tensor, Tensor]] = []
        for meeting, gradient in zip(self._meetings, told[:count], strict=True):
            if gradient is not None:
                found.append((meeting.source, wide(gradient).reshape(len(gradient), *meeting.source.shape)))
        for operation, gradient in zip(self._operations, told[count:], strict=True):
            if gradient is not None:
                operation.untouched.require("a module whose own parameters no rule covers")
                pairs = zip(operation.sources, _computed_again(operation, gradient), strict=True)
                found += [pair for pair in pairs if pair[0].requires_grad]
        return found


def _computed_again(operation: _Operation, gradient: Tensor) -> Sequence[Tensor]:
    arguments = [wide(entry) if isinstance(entry, Tensor) and entry.is_floating_point() else entry for entry in operation.arguments]

    def one(cotangent: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        def computed(*sources: Tensor) -> Tensor:
            entries = list(arguments)
            for place, row in zip(operation.records, rows, strict=True):
                entries[place] = row.unsqueeze(0)
            for place, source in zip(operation.free, sources, strict=True):
                entries[place] = source
            args, kwargs = tree_unflatten(entries, operation.spec)
            return operation.function(*args, **kwargs)

        pull = torch.func.vjp(computed, *(arguments[place] for place in operation.free))[1]
        return pull(cotangent.unsqueeze(0))

    name = _name(operation.function)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells which operations it loops over
            return torch.func.vmap(one)(wide(gradient), *(arguments[place] for place in operation.records))
    except RuntimeError as error:
        raise UnfollowedError(
            f"{name} on a parameter cannot be computed record by record: {str(error).splitlines()[0]}",
            source="a module whose own parameters no rule covers",
            remedy="register a rule for the module: lethe.train.clipping.register_rule.",
        ) from error


def _pulled_back(source: Tensor, aliases: Sequence[Tensor], gradient: Tensor) -> Sequence[Tensor | None]:
    """Gradients at `source`, one a record, to gradients at the parameters it was computed from."""
    gradient = gradient.to(source.dtype)
    options: dict[str, Any] = {"allow_unused": True, "retain_graph": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells which operations it loops over
            pulled = torch.autograd.grad(source, aliases, gradient, is_grads_batched=True, **options)
    except RuntimeError:
        rows = [torch.autograd.grad(source, aliases, row, **options) for row in gradient]
        pulled = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
    return [None if part is None else wide(part) for part in pulled]


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _described(output: Any) -> str:
    return f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__

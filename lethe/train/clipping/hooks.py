"""The recorded forward pass: inputs of every layer, and hooks for the gradients of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.hooks import RemovableHandle

from lethe.train.clipping.anchors import Anchor, Untouched
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.fallback import RecordFree, Tape
from lethe.train.clipping.records.calls import Call, detached, random_state, tensors_given
from lethe.train.clipping.records.folds import Folds
from lethe.train.clipping.records.stand_ins import Place, StandIns
from lethe.train.clipping.records.surrounded import refuse_checkpoints, refuse_transforms
from lethe.train.clipping.rules.registry import gives_fresh_views
from lethe.train.clipping.schedule import Depth
from lethe.train.clipping.survey import Survey
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import arithmetic, coarser
from lethe.train.model_state.module_attributes import attribute_of

_KINDS = 8  # of calls of the model are looked at in one recording


@dataclass(slots=True, eq=False)
class _Frame:
    """A module that is computing: what to restore afterwards, and the call if it is recorded."""

    module: nn.Module
    frozen: list[nn.Parameter] = field(default_factory=list)
    replaced: dict[str, nn.Parameter] = field(default_factory=dict)
    real: list[Place] = field(default_factory=list)
    call: Call | None = None


@dataclass(slots=True)
class _Counted:
    """How many records there are, None before that is known."""

    records: int | None


class Recording:
    """Hooks on a model's layers while records pass through it.

    A layer with a rule computes while its parameters do not ask for gradients, so that autograd neither computes nor awaits them: a
    parameter that gets one all the same was used elsewhere. Everywhere else in the model's forward pass a trained parameter is a
    record-free stand-in, whichever module reads it.

    Args:
        model: whose forward pass is recorded.
        found: its survey.
        decisions: see Decisions.
        records: B if it is known; else the first dimension of the first tensor that the model is given.
        attached: leave parameters in the graph, so that plain autograd can check the result.
        looked_at: asked once the model's first call tells B, if nothing was recorded before; what it says replaces `attached`.
        inspect: called with B, the arguments of the model's calls, one of each kind, and what they were computed in, hooks asleep, if the
            recording is looked at.
    """

    def __init__(
        self,
        model: nn.Module,
        found: Survey,
        decisions: Decisions,
        *,
        records: int | None,
        attached: bool,
        looked_at: Callable[[int], Depth] | None = None,
        inspect: Callable[[int, tuple[Any, ...], dict[str, Any], torch.dtype], None] | None = None,
    ) -> None:
        self.model = model
        self.found = found
        self._counted = _Counted(records)
        self.attached = attached
        self.calls: dict[nn.Module, list[Call]] = {}
        counted = self._counted
        self.folds = Folds(lambda: counted.records)
        self._decisions = decisions
        self._looked_at, self._inspect, self._kinds = looked_at, inspect, set[Hashable]()
        self._depth = Depth.THOROUGH if attached else Depth.NOT
        self._anchor = torch.zeros((), requires_grad=True)
        self._buffers = {id(buffer) for module in found.paths for buffer in module._buffers.values() if buffer is not None}
        # Nothing that the tape holds may lead back here: in a circle the layers' inputs would outlive the step.
        constant, counting = partial(_constant, self._buffers), {"folds": self.folds, "anchor": self._anchor}
        self.tape = Tape(lambda: counted.records, decisions, attached=attached, constant=constant, **counting)
        self._stand_ins = StandIns(model, found.names, self.tape.alias)
        self.asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        """The arguments of the model's calls, in containers of their own."""
        self.told: dict[Any, Tensor | None] = {}
        """Where a check will ask: the gradients of the sum of the losses, at outputs of layers and at copies of parameters."""
        self._frames: list[_Frame] = []
        self._handles: list[RemovableHandle] = []
        self._asleep = False
        self.precision = torch.float64

    @property
    def records(self) -> int | None:
        """B, None before it is known."""
        return self._counted.records

    @records.setter
    def records(self, records: int | None) -> None:
        self._counted.records = records

    def open(self) -> None:
        """Put the hooks on."""
        self._decisions.begin(self.model)
        self._handles.append(self.model.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True))
        # Hooks of the user's own run outside these: before the arguments are seen, and after the result is.
        for module in (*self.found.covered, *self.found.bare):
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True, always_call=True, prepend=True))
        self._handles.append(self.model.register_forward_hook(self._leave, always_call=True, prepend=True))

    def watched(self) -> dict[Tensor, str]:
        """Trained parameters and their stand-ins, with their names: what no backward pass may write gradients to."""
        return {**self.found.names, **{alias: self.found.names[parameter] for parameter, alias in self.tape.aliases.items()}}

    def leaves(self) -> list[Tensor]:
        """The leaves of the graph that this recording itself created."""
        return [self._anchor, *self.tape.aliases.values(), *(copies for copies in self.tape.wanted() if isinstance(copies, Tensor))]

    def close(self) -> None:
        """Take the hooks off, and undo what an interrupted forward pass left."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stand_ins.take_out()
        while self._frames:
            _restore(self._frames.pop())

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._asleep:
            return
        if self.records is None and torch.is_grad_enabled():
            tensors = [entry for entry in tree_flatten((args, kwargs))[0] if isinstance(entry, Tensor) and entry.dim() > 0]
            self.records = len(tensors[0]) if tensors else None
        self.precision = coarser(self.precision, arithmetic(next(iter(self.found.names)).device))
        if self._looked_at is not None and self.records is not None and torch.is_grad_enabled():
            looked_at, self._looked_at = self._looked_at, None
            if not self.calls and not self.tape.aliases:
                self._depth = looked_at(self.records)
                self.attached = self.tape.attached = self._depth is Depth.THOROUGH
        self._look(args, kwargs)
        if torch.is_grad_enabled() and self._inspect is not None and len(self.asked) < _KINDS:
            self.asked.append(tree_map(lambda entry: entry, (args, kwargs)))
        if torch.is_grad_enabled():
            self.folds.begin(entry for entry in tree_flatten((args, kwargs))[0] if isinstance(entry, Tensor))
            self._stand_ins.put_in()

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not self._asleep:
            self._stand_ins.take_out()

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have the call inspected before it is made: what the model does with its arguments and itself is not to meet the check."""
        if not self._depth or self._inspect is None or not torch.is_grad_enabled() or (self.records or 0) < 2:
            return
        kind = form_of_call(args, kwargs)
        if kind in self._kinds or len(self._kinds) == _KINDS:
            return
        self._kinds.add(kind)
        self._asleep = True
        try:
            self._inspect(cast("int", self.records), args, kwargs, self.precision)
        finally:
            self._asleep = False

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._asleep:
            return
        refuse_checkpoints(partial(self.found.describe, module))
        refuse_transforms(partial(self.found.describe, module))
        frame = _Frame(module)
        self._frames.append(frame)
        if not torch.is_grad_enabled():
            return
        own = self.found.covered.get(module)
        rows, doubtful = (0, False) if own is None else self._rows(module, args, kwargs)
        if own is None or not rows:
            parameters = self.found.bare[module] if own is None else own
            for name, parameter in parameters.items():
                if isinstance(module._parameters.get(name), RecordFree):
                    continue
                if name not in module._parameters:
                    raise UnfollowedError(f"{self.found.describe(module)} is called without records; its {name} cannot be told apart.")
                frame.replaced[name] = parameter
                module._parameters[name] = self.tape.alias(parameter)  # pyright: ignore[reportArgumentType]
            return
        frame.real = self._stand_ins.real_within(module)
        given = tensors_given(args, kwargs)
        if any(entry.is_nested for entry in given):
            raise UnfollowedError(
                f"{self.found.describe(module)} is given a nested tensor, of whose numbers nothing says which record's they are.",
                source="torch.nested in the model's forward pass",
                remedy="pad the records to one length, and mask the padding.",
            )
        frame.call = Call(
            inputs=tuple(detached(entry) for entry in args),
            keywords={key: detached(entry) for key, entry in kwargs.items()},
            untouched=Untouched(given, own.values()),
            random_state=random_state(module, given),
            rows=rows,
            doubtful=doubtful,
        )
        if not self.attached:
            for parameter in own.values():
                if parameter.requires_grad:
                    parameter.requires_grad_(False)
                    frame.frozen.append(parameter)

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if self._asleep or not self._frames:
            return None
        frame = self._frames.pop()
        _restore(frame)
        self._stand_ins.again(frame.real)
        if frame.call is None or output is None:
            return None
        frame.call.single = isinstance(output, Tensor)
        given = tensors_given(args, kwargs)
        held = self._held(output, frame.call.edges, module, given)
        if isinstance(held, Tensor) and not frame.call.doubtful and attribute_of(module, "batch_first", True) is not False:
            self.folds.note(frame.call.edges[0])  # pyright: ignore[reportArgumentType]
        self.calls.setdefault(module, []).append(frame.call)
        return held

    def _held(self, output: Any, edges: list[GradientEdge | None], module: nn.Module, given: list[Tensor]) -> Any:
        """The output with every tensor in the graph; appends their edges."""
        if output is None or (isinstance(output, Tensor) and not output.is_floating_point()):
            edges.append(None)
            return output
        if isinstance(output, Tensor):
            output = Anchor.hold(output, self._anchor, given, fresh=gives_fresh_views(module))
            edges.append(get_gradient_edge(output))
            self.precision = coarser(self.precision, output.dtype)
            return output
        if isinstance(output, PackedSequence):
            return output._replace(data=self._held(output.data, edges, module, given))
        if isinstance(output, tuple | list):
            entries = [self._held(entry, edges, module, given) for entry in output]
            return type(output)(*entries) if hasattr(output, "_fields") else type(output)(entries)
        raise UnfollowedError(
            f"{self.found.describe(module)} returns {type(output).__name__}; a layer with a rule needs tensors, or tuples of them."
        )

    def _rows(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, bool]:
        """How many rows of each record the layer is given, 0 where it is given something that is the same for all of them, such as
        positions; and whether that is yet to be proven."""
        entries = [*args, *kwargs.values()]
        if any(isinstance(entry, RecordFree) for entry in entries):
            return 0, False
        first = next((entry for entry in entries if isinstance(entry, Tensor | PackedSequence)), None)
        if first is None or isinstance(first, PackedSequence) or self.records is None:
            return 1, False
        if isinstance(module, nn.EmbeddingBag) and first.dim() == 1:
            return 1, False
        dimension = 1 if attribute_of(module, "batch_first", True) is False else 0
        fits = (
            first.dim() > dimension
            and first.shape[dimension] == self.records
            and not (self.records > 1 and _constant(self._buffers, first))
        )
        rows, doubtful = 1, False
        if not fits and dimension == 0 and not _constant(self._buffers, first):
            rows = self.folds.fold(first) or 0
            doubtful = not rows and not first.requires_grad
            rows = (self.folds.like(first) or 0) if doubtful else rows
            fits = rows > 0
        fits = self._decisions.settle(("call of", self.found.describe(module)), [fits], self.records)[0]
        if not fits and first.requires_grad:
            raise UnfollowedError(
                f"{self.found.describe(module)} is given shape {tuple(first.shape)}; it needs the {self.records} records along "
                f"dimension {dimension}.",
                source="the model's forward pass",
                remedy="keep the records' dimension by itself (flatten the others only); if the first tensor that the model is given does "
                "not start with the records, name their number: recording(records=...).",
            )
        return (rows, doubtful) if fits else (0, False)


def form_of_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """What tells calls of a model apart: which arguments there are, tensors by type and dimensions, words and switches by value."""
    leaves, spec = tree_flatten((args, kwargs))
    told = [
        (entry.dtype, entry.dim()) if isinstance(entry, Tensor) else entry if isinstance(entry, bool | str | None) else type(entry)
        for entry in leaves
    ]
    return str(spec), tuple(told)


def _constant(buffers: Container[int], tensor: Tensor) -> bool:
    """Whether it is a buffer of the model, told by its id, or a part of one: never records, whatever its length."""
    return id(tensor) in buffers or (id(tensor._base) in buffers and 0 not in tensor.stride())


def _restore(frame: _Frame) -> None:
    for parameter in frame.frozen:
        parameter.requires_grad_(True)
    for name, parameter in frame.replaced.items():
        frame.module._parameters[name] = parameter

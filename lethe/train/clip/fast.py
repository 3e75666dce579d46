"""The fast way to per-record gradients: one forward and one backward pass for all records, recorded layer by layer.

`RecordGradients` opens a `Recording` for each batch. Hooks store what each layer received and the gradient in what it returned; the layer's
rule makes of both the gradients of all records in its parameters (parts, parts/part.py).

While a batch is computed the trained parameters do not require grad: no gradient of a whole batch is ever taken. What a layer gives does,
and a hook on it is handed the gradient in it; what the layer was given is saved as autograd saves, so that activation checkpointing and
offloading find it.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from lethe.train.clip.parts.outer_products import Memory, together
from lethe.train.clip.parts.part import Grouping, ParameterGradients
from lethe.train.clip.rules.registry import Layer
from lethe.train.clip.rules.rule import Call, Parts
from lethe.train.clip.rules.simple_layers import any_layer, no_parameter, tensors_of
from lethe.train.clip.shared import Shared
from lethe.train.clip.sums import Arriving
from lethe.train.core.comparison import coarser

Gradients = dict[nn.Parameter, ParameterGradients]

Choices = dict[tuple[nn.Module | None, int], tuple[str, str]]
"""How the n-th call of a module in a batch was taken: its "rows" are records, or "several" of each; the "second" dimension is theirs; "one"
row, or "all" of it, is the same for every record; or it was "shared", see `Shared`. And which function it was, or which of its inputs had
as many rows, where that matters. Of no module: how the loss was taken."""

LAYOUTS = ("blocks", "interleaved", "second", "shared", "repeated")
"""What is tried where a layer is given other than one row a record: its k rows of each record lie in k blocks of all records, or side by
side; records are along the second dimension; indices that are alone in a row are the same for all records, such as positions; or one row is
the same for all k rows, in blocks, of each record."""


class _Hold(torch.autograd.Function):
    """Keeps tensors until the backward pass by autograd's own means, so that hooks for offloading see them."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return anchor.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None,) * (1 + len(ctx.saved_tensors))


class _Anchored(torch.autograd.Function):
    """The identity, with an output that requires a gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, anchor: Tensor) -> Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None


def run_backward(total: Tensor) -> None:
    """`total.backward()`, for which PyTorch would leave all modes of torch's functions."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.run_backward((total,), (torch.ones_like(total),), False, False, (), True, True)


class Recording:
    """The calls of one batch of B records in one of LAYOUTS, and the parts that its backward pass makes of them.

    Each group of parameters is handed to `arriving` as soon as its gradients are complete; None: all are kept until the end. `ambiguous`
    says whether another layout would have made a difference, `precision` the coarsest type of number that a layer gave. `choices` are those
    of this batch: where a call can be taken as in `choices`, of a batch that was checked, it is. How many records a batch has is
    chance, and may be any other size of it as well.
    """

    def __init__(
        self,
        records: int,
        layout: str,
        memory: Memory,
        device: torch.device,
        arriving: Arriving | None = None,
        choices: Mapping[tuple[nn.Module | None, int], tuple[str, str]] | None = None,
    ) -> None:
        self.records, self.layout, self.memory = records, layout, memory
        self.choices: Choices = {}
        self.factors: Tensor | None = None  # that make of each record's part its gradient, shape (B,)
        self._rows = records  # that a layer gave last, several of each record
        self._known = choices or {}
        self._nth: dict[nn.Module, int] = defaultdict(int)
        self.shared: Shared | None = None
        self.parts: dict[Any, list[ParameterGradients]] = defaultdict(list)
        self.ambiguous = False
        self.precision = torch.float64
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self._plain = layout in LAYOUTS[:2]
        self._late: list[Callable[[], None]] = []
        self.computing = False  # a rule, which may call the layer again
        self._arriving = arriving
        self._calls: dict[nn.Parameter, int] = defaultdict(int)  # in the forward pass
        self._awaited: dict[int, int] = defaultdict(int)  # calls of each group whose gradient has not come yet
        self._backward = False

    @contextmanager
    def running(self, layers: Sequence[Layer], trained: Sequence[nn.Parameter]) -> Generator[None]:
        """Within: calls of layers are recorded, forward and backward, and the trained parameters do not require grad."""
        handles: list[Any] = []
        replaced: list[nn.Module] = []
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it calls no layer
        try:
            for layer in layers:
                module, forward = layer.module, layer.module.forward
                if self.shared is not None and layer.rule.parts is any_layer:
                    continue  # its parameters are shared
                if layer.rule.forward is None:
                    handles.append(module.register_forward_hook(partial(self._called, layer), with_kwargs=True))
                else:
                    forward = partial(layer.rule.forward, module, partial(self.watched, layer, turnable=False))
                if layer.rule.forward is not None or self.shared is not None:
                    replaced.append(module)
                    once = module.forward
                    module.forward = forward if self.shared is None else partial(self.shared.within, layer, forward, once)
            for parameter in trained:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
            for module in replaced:
                del module.forward
            for handle in handles:
                handle.remove()
            torch.backends.mha.set_fastpath_enabled(fast_path)

    def next_call(self, module: nn.Module) -> tuple[nn.Module, int]:
        """The key of the next call of a module in `choices`."""
        return module, self._nth[module]

    def note(self, module: nn.Module, choice: str, of: str = "") -> None:
        """How the next call of a module is taken."""
        self.choices[self.next_call(module)] = choice, of
        self._nth[module] += 1

    def expects(self, module: nn.Module, of: str) -> bool:
        """Whether the next call may be one of rows, and of this function: where batches were checked, it was."""
        choice, expected_kind = self._known.get(self.next_call(module), ("shared" if self._known else "", of))
        return choice != "shared" and expected_kind == of

    def watched(
        self, layer: Layer, output: Tensor, inputs: Sequence[Tensor], rule: Callable[..., Parts], *, turnable: bool = True, of: str = ""
    ) -> Tensor:
        """The output, whose gradient will be handed to `rule(gradient, inputs, memory)`, see `rule.Watch`.

        Records may be along its second dimension where it is `turnable`: not in a step of a forward pass of our own. `of`: the function
        that gave it, where it is no layer.
        """
        if self.computing or not torch.is_grad_enabled():  # a frozen teacher, or the first pass of a checkpoint
            return output
        if output.dtype in (torch.bfloat16, torch.float16):
            self.precision = coarser(self.precision, output.dtype)
        if output.is_nested:
            raise NotImplementedError("nested tensors, whose rows are no records")
        if not of and layer.rule.parts is any_layer:
            output = no_parameter(output, layer.parameters.values())
        choice = self._choice(output, inputs, self._known.get(self.next_call(layer.module), ("", of))[0], turnable)
        self.note(layer.module, choice, of or _with_rows(layer, inputs, len(output)))
        if of and choice in ("one", "all"):
            raise ValueError(f"{of}() of no rows of the records")
        turned, grouping = choice == "second", None
        if choice == "several":
            grouping, self._rows = self._several_each(len(output)), len(output)
        elif choice == "all":  # without a dimension of the records: it is given one
            output, inputs = output.expand(self.records, *output.shape), [tensor.expand(self.records, *tensor.shape) for tensor in inputs]
        elif choice == "one":
            rows = self._rows if self.layout == LAYOUTS[4] else self.records
            inputs = [tensor.expand(rows, *tensor.shape[1:]) if len(tensor) == 1 else tensor for tensor in inputs]
            output, grouping = output.expand(rows, *output.shape[1:]), self._several_each(rows)
        output = output if output.requires_grad else _Anchored.apply(output, self.anchor)
        hold = [_Hold.apply(self.anchor, *inputs).grad_fn]
        self._await(layer)

        def arrived(gradient: Tensor) -> None:
            if not hold:
                raise RuntimeError(f"gradients are taken twice of what {type(layer.module).__name__} gave")
            # Let go of what was saved, as autograd does: this hook lives as long as the losses do.
            saved = hold.pop().saved_tensors
            if turned:
                gradient = gradient.transpose(0, 1)
                saved = tuple(
                    tensor.transpose(0, 1) if tensor.dim() > 1 and tensor.shape[1] == self.records else tensor for tensor in saved
                )
            self._add(layer, rule(gradient, saved, self.memory), grouping)
            if self._arriving is not None:
                self._hand_over(layer, self._arriving)

        output.register_hook(arrived)
        return output

    def _called(self, layer: Layer, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """A forward hook."""
        if self.computing or not torch.is_grad_enabled() or (self.shared is not None and self.shared.once[module]):
            return output
        parts_of, names = layer.rule.parts, layer.parameters
        assert parts_of is not None
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            return self.watched(
                layer, output, args, lambda gradient, saved, memory: parts_of(Call(module, saved, {}, (gradient,), names, memory))
            )
        leaves, spec = tree_flatten((args, kwargs))
        tensor_indices = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        non_tensors = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

        def call(gradients: tuple[Tensor | None, ...], saved: Sequence[Tensor], memory: Memory) -> Parts:
            filled = list(non_tensors)
            for index, tensor in zip(tensor_indices, saved, strict=True):
                filled[index] = tensor
            args, kwargs = tree_unflatten(filled, spec)
            return parts_of(Call(module, args, kwargs, gradients, names, memory))

        inputs = [leaves[index] for index in tensor_indices]
        if isinstance(output, Tensor):
            return self.watched(layer, output, inputs, lambda gradient, saved, memory: call((gradient,), saved, memory))
        return self._several(layer, output, inputs, call)

    def _several(self, layer: Layer, output: Any, inputs: Sequence[Tensor], call: Callable[..., Parts]) -> Any:
        """Of a layer with several outputs the gradients are collected first."""
        leaves, spec = tree_flatten(output)
        leaves = [no_parameter(leaf, layer.parameters.values()) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        outputs = tensors_of(leaves)
        if any(len(tensor) != self.records for tensor in outputs):
            raise ValueError("several outputs whose first dimension is not the records'")
        self.note(layer.module, "rows", _with_rows(layer, inputs, self.records))
        # As views: one output may be computed of another, and what is wanted is the gradient that comes from outside.
        self._await(layer)  # until the end
        anchored_outputs = [tensor if tensor.requires_grad else _Anchored.apply(tensor, self.anchor) for tensor in outputs]
        anchored = {id(tensor): anchored_output.view_as(tensor) for tensor, anchored_output in zip(outputs, anchored_outputs, strict=True)}
        hold = _Hold.apply(self.anchor, *inputs).grad_fn
        gradients: list[Tensor | None] = [None] * len(outputs)
        saved: list[Tensor] = []

        def arrived(index: int, gradient: Tensor) -> None:
            if not saved:
                saved.extend(tensor.detach() for tensor in hold.saved_tensors)
                self._late.append(lambda: self._add(layer, call(tuple(gradients), saved, self.memory), None))
            gradients[index] = gradient

        for index, tensor in enumerate(outputs):
            anchored[id(tensor)].register_hook(partial(arrived, index))
        return tree_unflatten([anchored.get(id(leaf), leaf) for leaf in leaves], spec)

    def gradients(self, total: Tensor) -> Gradients:
        """The backward pass, and the parts of each parameter, all calls together, but for those that were handed over."""
        self._backward = True  # what is called from now on is computed again, by activation checkpointing
        if total.requires_grad:
            run_backward(total)  # a mode of torch's functions stays, for what checkpoints compute again
        with torch.no_grad():
            for late in self._late:
                late()
            self._late = []
            if self.shared is not None:
                self.shared.gathered(self.parts)
            if self._arriving is None:
                return self._taken(list(self.parts))
            for group_index in {self._arriving.places[parameter] for parameter in self.parts}:
                self._arrive(group_index, self._arriving)
            return {}

    def _taken(self, parameters: Sequence[nn.Parameter]) -> Gradients:
        """The parts of some parameters, which are kept no longer."""
        taken: Gradients = {}
        for parameter in parameters:
            parts = self.parts.pop(parameter)
            part = parts[0] if len(parts) == 1 else together(parts, parameter.numel(), self.memory)
            taken[parameter] = part if self.factors is None else part.scaled(self.factors)
        return taken

    def _await(self, layer: Layer) -> None:
        if self._backward:
            return
        for parameter in layer.parameters.values():
            self._calls[parameter] += 1
        if self._arriving is not None:
            for group_index in {self._arriving.places[parameter] for parameter in layer.parameters.values()}:
                self._awaited[group_index] += 1

    def _hand_over(self, layer: Layer, arriving: Arriving) -> None:
        """One call's gradient came: add the groups that are complete."""
        for group_index in {arriving.places[parameter] for parameter in layer.parameters.values()}:
            self._awaited[group_index] -= 1
            if self._awaited[group_index] <= 0:
                self._arrive(group_index, arriving)
        if not self.parts:
            self.memory.left = self.memory.limit

    def _arrive(self, group_index: int, arriving: Arriving) -> None:
        arriving.add(group_index, self._taken([parameter for parameter in self.parts if arriving.places[parameter] == group_index]))

    def _add(self, layer: Layer, parts: Parts, grouping: Grouping | None) -> None:
        self.computing = True
        try:
            for name, part in parts:
                parameter = layer.parameters.get(name)
                if parameter is not None:
                    of_records = part if grouping is None else part.grouped(grouping)
                    self.parts[parameter].append(of_records.settled() if self._calls[parameter] == 1 else of_records)
        finally:
            self.computing = False

    def _choice(self, output: Tensor, inputs: Sequence[Tensor], known_choice: str, turnable: bool) -> str:
        """How a call is taken, see `Choices`; only rows where it is not `turnable`."""
        rows, records = len(output), self.records
        flat = output.dim() < 3 and not (inputs and inputs[0].dim() == 1)
        if self._plain and rows == records and flat and turnable and known_choice in ("", "rows"):
            return "rows"
        turned = turnable and output.dim() > 2 and output.shape[1] == records
        one_dimensional = turnable and bool(inputs) and inputs[0].dim() == 1
        self.ambiguous |= turned or one_dimensional or rows != records
        several, single = rows % records == 0, turnable and rows == 1
        possible = {"rows": rows == records, "several": several, "second": turned, "one": single, "all": turnable}
        if possible.get(known_choice):
            return known_choice
        if turned and (self.layout == "second" or not (several or single)):
            return "second"
        if (self.layout == "shared" and one_dimensional and self.shared is None) or (turnable and not (several or single)):
            return "all"
        return "rows" if rows == records else "one" if single else "several"

    def _several_each(self, rows: int) -> Grouping | None:
        """How the k rows of each record lie: side by side, or in k blocks of all records."""
        if rows == self.records:
            return None
        if rows % self.records:
            raise ValueError(f"{rows} rows, which are not as many of each of {self.records} records")
        if self.layout == LAYOUTS[1]:
            return lambda rows: rows.unflatten(0, (self.records, -1))
        return lambda rows: rows.unflatten(0, (-1, self.records)).transpose(0, 1)


def _with_rows(layer: Layer, inputs: Sequence[Tensor], rows: int) -> str:
    """Which inputs of a layer that has no rule are told apart by rows."""
    return "".join(str(int(tensor.dim() and len(tensor) == rows)) for tensor in inputs) if layer.rule.parts is any_layer else ""

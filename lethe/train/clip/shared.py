r"""Per-record gradients of trained parameters that are used outside a layer: relative positions, weights that adapters add up, prompts.

Rules form per-record gradients inside layers; such parameters are in none. `RecordGradients` enters this mode of torch's functions, with a
`Recording`, around the forward pass. It marks each tensor with one of three kinds: "shared" (made of trained parameters alone), "batch"
(made of records), "rows" (a constant with a row for each record). Where a shared tensor s is combined with one of the batch, every record
gets a copy, whose gradient $g_i$ is the record's. Its gradient in the parameters is $J^\top g_i$, J the Jacobian of s: the backward pass of
what made s, of all records under vmap.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, _vmap_internals, nn
from torch.func import grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.registry import Layer
from lethe.train.clip.rules.rule import Parts, as_computed, positions, wide
from lethe.train.clip.shared_draws import of_no_record

_BINARY = ("add", "sub", "mul", "div", "truediv")
_OF_NUMBERS = {*_BINARY, *(f"r{name}" for name in _BINARY), *(f"i{name}" for name in _BINARY), "where", "maximum", "minimum", "pow"}
"""Functions of the numbers in one place of each of their arguments, whose shapes are broadcast."""

_LIKE = {"to", "type_as", "view_as", "reshape_as"}
"""Functions of their first argument alone."""

_MADE = {"expand", "repeat", "zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty"}
_SPREAD, _LINEAR = {"expand", "repeat"}, ("input", "weight", "bias")
_PRODUCTS = {"matmul", "mm", "rmatmul"}
_WRITTEN = {*(f"__i{name}__" for name in _BINARY), "__setitem__"}

# What says something of a tensor, and gives none.
_SAYING: set[Any] = {Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point, Tensor.is_contiguous, Tensor.stride, Tensor.__len__}
for _name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout", "is_meta", "grad_fn", "is_nested"):
    _SAYING.add(getattr(Tensor, _name).__get__)

_SHARED, _BATCH, _ROWS = "shared", "batch", "rows"


class Shared(TorchFunctionMode):
    """Follows one batch; copies of shared tensors are watched by a `Recording`, and `gathered` turns their gradients into the parameters'.

    A parameter is "shared", except in the call of a layer whose rule takes something of the batch. A constant with as many rows as there
    are records counts as made of records where it is combined with a shared tensor. The first batches of a training are compared with
    their records alone; in later ones a constant is taken as it was in those.

    Args:
        recording: the `Recording` (fast.py) of this batch. It registers how each layer call forms gradients (`watched`), knows how the
            same call was taken in the batches that were compared (`expects`, `choices`), and in which layout records lie (`layout`).
        model: whose forward pass runs in this mode; calls outside its layers are registered under it.
        trained: the trained parameters; each gets a "twin", a copy that the forward pass uses and whose gradient is read.
        batch: its tensors are marked "batch".
    """

    def __init__(self, recording: Any, model: nn.Module, trained: Iterable[nn.Parameter], batch: Any) -> None:
        super().__init__()
        self._recording, self._model, self._owner = recording, model, object()
        self._twins = {parameter: parameter.detach().requires_grad_() for parameter in trained}
        self._ruled: Counter[nn.Parameter] = Counter()
        self.once: dict[nn.Module, bool] = {}  # whether the last call of a layer was for all records
        self._mark(_SHARED, self._twins.values())
        self._given = tree_leaves(batch)
        self._mark(_BATCH, self._given)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for leaf in self._given:
            if isinstance(leaf, Tensor):
                vars(leaf).pop("_lethe_kind", None)

    def _mark(self, kind: str, leaves: Iterable[Any]) -> None:
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                leaf._lethe_kind = (self._owner, kind)  # pyright: ignore[reportAttributeAccessIssue]

    def _kind(self, tensor: Tensor) -> str:
        """The kind of a tensor; without a mark, "batch" if it requires a gradient, as outputs of layers do, else ""."""
        owner, kind = getattr(tensor, "_lethe_kind", (None, ""))
        return kind if owner is self._owner else _BATCH if tensor.requires_grad and not isinstance(tensor, nn.Parameter) else ""

    def within(self, layer: Layer, forward: Callable[..., Any], once: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call of a layer: `forward` by its rule; `once`, for all records, where it is given nothing of them."""
        kinds = {self._kind(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        of_batch = _BATCH in kinds or (_ROWS in kinds and self._recording.expects(layer.module, ""))
        self.once[layer.module] = not of_batch
        if not of_batch:
            self._recording.note(layer.module, "shared")
            return once(*args, **kwargs)
        self._ruled.update(layer.parameters.values())
        try:
            return forward(*args, **kwargs)
        finally:
            self._ruled.subtract(layer.parameters.values())

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call the function; where a shared tensor is combined with one of the batch, give each record a copy."""
        kwargs = kwargs or {}
        if self._recording.computing or func in _SAYING:
            return func(*args, **kwargs)
        if func is functional.linear and kwargs:
            args, kwargs = tuple((dict(zip(_LINEAR, args, strict=False)) | kwargs).get(name) for name in _LINEAR), {}
        leaves, spec = list(args), None
        if kwargs or any(isinstance(leaf, list | tuple) for leaf in args):
            leaves, spec = tree_flatten((args, kwargs))
        kinds = [""] * len(leaves)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if isinstance(leaf, nn.Parameter) and leaf in self._twins and self._ruled[leaf] <= 0:
                    leaves[index] = leaf = self._twins[leaf]
                kinds[index] = self._kind(leaf)
        name = func.__name__.strip("_")
        if name in _LIKE:
            kinds[1:] = [""] * (len(kinds) - 1)
        of_batch, shared = _BATCH in kinds, _SHARED in kinds and torch.is_grad_enabled()
        if shared and _ROWS in kinds and not of_batch:
            of_batch = self._recording.expects(self._model, name)
        spread = self._repeated_for_records(name, leaves) if shared and name in _SPREAD and not of_batch else None
        if shared and of_batch:
            output = self._combined(func, name, leaves, spec, kinds)
        elif spread is not None:
            output, of_batch = spread, True
        else:
            with nullcontext() if of_batch else of_no_record():
                output = _called(func, leaves, spec)
        kind = _BATCH if of_batch else _SHARED if shared else _ROWS if _ROWS in kinds else ""
        if kind or name in _MADE:
            outputs = [output] if isinstance(output, Tensor) else [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
            if func.__name__ in _WRITTEN or (func.__name__[-1] == "_" != func.__name__[0]):
                outputs.append(leaves[0])
            if kind == _SHARED:
                outputs = [leaf for leaf in outputs if leaf.requires_grad]
            elif not kind or kind == _ROWS:
                outputs = [leaf for leaf in outputs if self._has_rows(leaf)] if kind or self._has_row_per_record(leaves, output) else []
            self._mark(kind or _ROWS, outputs)
        return output

    def _has_rows(self, constant: Tensor) -> bool:
        return constant.dim() > 0 and len(constant) >= self._recording.records and len(constant) % self._recording.records == 0

    def _has_row_per_record(self, leaves: list[Any], constant: Tensor) -> bool:
        """Whether a constant was made, or expanded, with rows for each record, as far as sizes tell."""
        if constant.dim() < 2 or not self._has_rows(constant) or self._recording.layout == "shared":
            return False
        self._recording.ambiguous = True
        return not isinstance(leaves[0], Tensor) or leaves[0].dim() < constant.dim() or len(leaves[0]) != len(constant)

    def _watch(self, name: str, value: Tensor, inputs: Sequence[Tensor], sources: dict[str, Tensor], rule: Callable[..., Parts]) -> Tensor:
        layer = Layer(self._model, sources, None)  # pyright: ignore[reportArgumentType]
        return self._recording.watched(layer, value, inputs, rule, of=name)

    def _combined(self, func: Any, name: str, leaves: list[Any], spec: Any, kinds: list[str]) -> Any:
        """The output of a function of shared tensors and of tensors of the batch, with per-record gradients for the shared ones."""
        shared = [index for index, kind in enumerate(kinds) if kind == _SHARED]
        if name in _OF_NUMBERS:
            shape = torch.broadcast_shapes(*(leaf.shape for leaf in leaves if isinstance(leaf, Tensor)))
            for place in shared:
                leaves[place] = self._copies(name, leaves[place], shape)
            return _called(func, leaves, spec)
        if name == "expand_as":
            return self._copies(name, leaves[0], leaves[1].shape)
        if name == "linear" and 0 not in shared:
            return self._linear(leaves[0], leaves[1], leaves[2] if len(leaves) > 2 else None)
        if name == "scaled_dot_product_attention" and shared[0] > 2:  # a mask
            for place in shared:
                leaves[place] = self._copies(name, leaves[place], (len(leaves[0]), *leaves[place].shape[1:]))
            return _called(func, leaves, spec)
        if name in _PRODUCTS and shared == [1] and leaves[1].dim() == 2:
            return self._linear(leaves[0], leaves[1].mT, None)
        return self._recomputed(func, name, leaves, spec, shared, [index for index, kind in enumerate(kinds) if kind in (_BATCH, _ROWS)])

    def _copies(self, name: str, shared: Tensor, shape: Sequence[int]) -> Tensor:
        """A shared tensor, expanded, with the records along the first of the new dimensions."""
        new = len(shape) - shared.dim()
        if new == 0 and shared.dim() and shared.shape[0] != 1:
            raise NotImplementedError("a shared tensor that has as many rows as the records have")

        def rule(gradient: Tensor, _inputs: tuple[Tensor, ...], _memory: Memory) -> Parts:
            sizes = (1,) * new + tuple(shared.shape)
            summed = [dim for dim in range(1, gradient.dim()) if sizes[dim] == 1 < gradient.shape[dim]]
            gradient = gradient.sum(summed, keepdim=True) if summed else gradient
            yield "0", MaterialisedGradients(wide(gradient).reshape(len(gradient), *shared.shape))

        return self._watch(name, shared.data.expand(shape), (), {"0": shared}, rule)

    def _repeated_for_records(self, name: str, leaves: list[Any]) -> Tensor | None:
        """The output of expand or repeat of a shared tensor over the records; None: over another dimension."""
        shared, sizes, records = leaves[0], [leaf for leaf in leaves[1:] if isinstance(leaf, int)], self._recording.records
        new = len(sizes) - shared.dim()
        if len(sizes) != len(leaves) - 1 or not sizes or sizes[0] < 2 or sizes[0] % records:
            return None
        if not self._recording.expects(self._model, name):
            return None
        if name == "expand":
            if new == 0 and shared.shape[0] != 1:
                return None
            return self._copies(name, shared, shared.detach().expand(sizes).shape)
        copies = self._copies(name, shared, (records, *[1] * new, *shared.shape))
        return copies.repeat(1, sizes[0] // records, *sizes[1:]).flatten(0, 1)

    def _linear(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As `_combined`, for an affine map whose weight or bias is shared."""
        sources = {name: tensor for name, tensor in (("weight", weight), ("bias", bias)) if tensor is not None and tensor.requires_grad}

        def rule(gradient: Tensor, inputs: tuple[Tensor, ...], memory: Memory) -> Parts:
            inner, gradient = positions(as_computed(inputs[0], gradient)), positions(wide(gradient))
            if "weight" in sources:
                yield "weight", OuterProducts(inner, gradient, memory)
            if "bias" in sources:
                yield "bias", MaterialisedGradients(gradient.sum(1))

        value = functional.linear(layer_input, weight.detach(), None if bias is None else bias.detach())
        return self._watch("linear", value, (layer_input,), sources, rule)

    def _recomputed(self, func: Any, name: str, leaves: list[Any], spec: Any, shared: list[int], record_indices: list[int]) -> Tensor:
        """As `_combined`, for any other function: its gradient is computed again for each record, under vmap."""
        sources = {str(index): leaves[index] for index in shared}
        filled = [leaf.detach() if index in shared else leaf for index, leaf in enumerate(leaves)]
        output = _called(func, filled, spec)
        if not isinstance(output, Tensor) or any(output is leaf for leaf in filled):
            raise NotImplementedError(f"{name}() of what is the same for all records, and of some of each")
        call = self._recording.next_call(self._model)

        def rule(gradient: Tensor, inputs: tuple[Tensor, ...], _memory: Memory) -> Parts:
            dim = int(self._recording.choices[call][0] == "second")
            if any(len(tensor) != len(gradient) for tensor in inputs):
                raise NotImplementedError(f"{name}() of the batch, with other dimensions than the records'")

            def product(values: list[Tensor], gradient: Tensor, inputs: Sequence[Tensor]) -> Tensor:
                arguments = list(filled)
                for index, value in zip((*shared, *record_indices), (*values, *(row.unsqueeze(dim) for row in inputs)), strict=True):
                    arguments[index] = value
                return (_called(func, arguments, spec).reshape(gradient.shape) * gradient).sum()

            formed = vmap(grad(product), (None, 0, 0))([filled[index] for index in shared], gradient, inputs)
            for source, gradients in zip(sources, formed, strict=True):
                yield source, MaterialisedGradients(gradients)

        return self._watch(name, output, [leaves[index] for index in record_indices], sources, rule)

    def gathered(self, parts: dict[Any, list[Any]]) -> None:
        """Put the gradients of what is shared into those of the parameters."""
        parameters = {twin: parameter for parameter, twin in self._twins.items()}
        values, rows = list[Tensor](), list[Tensor]()
        for value in [key for key in parts if not isinstance(key, nn.Parameter)]:
            twin_parts = parts.pop(value)
            if value in parameters:
                parts[parameters[value]] += twin_parts
            else:
                values.append(value)
                rows.append(torch.stack([part.rows().reshape(-1, *value.shape) for part in twin_parts]).sum(0).to(value.dtype))
        if values:
            twins, engine = tuple(parameters), torch.autograd.Variable._execution_engine

            def backward(*gradients: Tensor) -> Any:
                return engine.run_backward(tuple(values), gradients, False, False, twins, True, False)  # pyright: ignore[reportAttributeAccessIssue]

            # As torch.autograd.grad(is_grads_batched=True), which would leave this mode, and checkpoints compute again what it followed.
            pulled = _vmap_internals._vmap(backward, 0, 0, allow_none_pass_through=True)(*rows)
            for twin, gradient in zip(twins, pulled, strict=True):
                if gradient is not None:
                    parts[parameters[twin]].append(MaterialisedGradients(gradient))


def _called(func: Any, leaves: list[Any], spec: Any) -> Any:
    if spec is None:
        return func(*leaves)
    args, kwargs = tree_unflatten(leaves, spec)
    return func(*args, **kwargs)

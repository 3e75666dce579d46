"""Slow but certain ways to per-record gradients, in which records cannot influence each other: vmap, or one record after another.
`RecordGradients` uses them where no rule of a layer applies or isolation is "enforced"; the check compares the fast way with them. Also:
how many records a batch holds (`records_of`), and some of them (`rows_of`).
"""

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_leaves, tree_map

from lethe.errors import InputError
from lethe.train.clip.parts.part import MaterialisedGradients


def records_of(batch: Any) -> int:
    """B, the records of a batch."""
    sizes: set[int] = set()
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor):
            sizes.add(leaf.shape[0] if leaf.dim() else -1)
    if len(sizes) != 1 or -1 in sizes:
        got = f"tensors of {', '.join(map(str, sorted(sizes)))} entries" if sizes else type(batch).__name__
        raise InputError(
            f"batch: got {got}; it needs tensors that all have the records along their first dimension.",
            remedy="collate records into tensors of one length; what is the same for all records belongs to the model or the loss.",
        )
    return sizes.pop()


def rows_of(batch: Any, rows: Any) -> Any:
    """Some records of a batch: a slice, or a tensor or list of places."""
    return tree_map(lambda leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf, batch)


class MeanLoss(NamedTuple):
    """The loss of a batch as one number: the mean over its records, or over items, of which each record has some.

    Attributes:
        value: of no dimension.
        counts: how many items each record has, such as the tokens that it predicts, shape (B,); 1 each: of records alone.
    """

    value: Tensor
    counts: Tensor

    @property
    def uneven(self) -> bool:
        """Whether the two means differ."""
        return bool((self.counts != self.counts[0]).any())

    def total(self, *, items: bool) -> tuple[Tensor, Tensor | None]:
        """A sum over the records, of no dimension, and the factors that make of each one's part its own loss, shape (B,); None: all 1."""
        if not items:
            return self.value * len(self.counts), None
        return self.value * self.counts.sum(), 1 / self.counts.clamp(min=1).double()


Losses = Callable[[Any], Tensor | MeanLoss]


def of_records(losses: Tensor | MeanLoss) -> tuple[Tensor, Tensor]:
    """The losses that say which records cannot be measured, 0 where their gradients have to, and those to be told; shape (B,)."""
    if isinstance(losses, Tensor):
        return losses, losses
    return torch.zeros_like(losses.counts, dtype=torch.float64), losses.value.expand(len(losses.counts))


def by_vmap(
    model: nn.Module, losses: Losses, trained: Sequence[nn.Parameter], batch: Any, values: Sequence[Tensor] | None = None
) -> tuple[dict[nn.Parameter, MaterialisedGradients], Tensor]:
    """The gradients of all records, each computed alone, and their losses; at other `values` of the parameters, if there are some."""
    modules = list(model.modules())

    def loss(parameters: list[Tensor], record: Any) -> Tensor:
        with swapped(modules, dict(zip(trained, parameters, strict=True))):
            return cast(Tensor, losses(tree_map(lambda leaf: leaf[None] if isinstance(leaf, Tensor) else leaf, record))).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that vmap takes one record at a time
        detached = [parameter.detach() for parameter in trained] if values is None else list(values)
        rows, of_records = vmap(grad_and_value(loss), (None, 0), randomness="different")(detached, batch)
    return {parameter: MaterialisedGradients(tensor) for parameter, tensor in zip(trained, rows, strict=True)}, of_records


@contextmanager
def swapped(modules: Iterable[nn.Module], tensors: Mapping[nn.Parameter, Tensor]) -> Generator[None]:
    """Within: wherever one of these modules holds one of these parameters, it holds the tensor.

    `torch.func.functional_call` does not put parameters back that are reached by several names of one module, such as a bank of vectors
    that all adapters share.
    """
    entries = [
        (module._parameters, name, parameter)
        for module in modules
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter in tensors
    ]
    try:
        for table, name, parameter in entries:
            table[name] = tensors[parameter]  # pyright: ignore[reportArgumentType]
        yield
    finally:
        for table, name, parameter in entries:
            table[name] = parameter


def gradient_of(
    losses: Losses, trained: Sequence[nn.Parameter], record: Any, *, reached: set[nn.Parameter], accumulate: bool = False
) -> tuple[dict[nn.Parameter, Tensor], Tensor]:
    """The gradient of the sum of the losses of a batch, such as of one record, and the losses.

    By `backward`: what a layer computes in a backward pass of its own, as reversible ones do, escapes `torch.autograd.grad`. With
    `accumulate`, losses that are made of parameters of other modules are refused, by an InputError. Those that the losses are made of
    go to `reached`. Of layers that are `sparse` a gradient is COO, not coalesced.
    """
    before = [parameter.grad for parameter in trained]
    for parameter in trained:
        parameter.grad = None
    try:
        values = cast(Tensor, losses(record))
        if not values.requires_grad:
            source = "an adapter that is merged or switched off, torch.no_grad(), a detached output, or another model's"
            remedy = "compute the loss of the model that is trained, with its adapter active (model.unmerge_adapter())."
            raise InputError("losses: they depend on no trained parameter, so nothing would be learnt.", source=source, remedy=remedy)
        if accumulate:
            _refuse_other_parameters(values, trained)
        values.sum().backward()
        reached.update(parameter for parameter in trained if parameter.grad is not None)
        gradients = {parameter: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in trained}
        return {parameter: gradient.detach() for parameter, gradient in gradients.items()}, values.detach()
    finally:
        for parameter, gradient in zip(trained, before, strict=True):
            parameter.grad = gradient


def _refuse_other_parameters(values: Tensor, trained: Sequence[nn.Parameter]) -> None:
    """Refuse losses that are made of parameters of other modules: a backward pass would leave them gradients that nobody clipped."""
    waiting, visited, trained_set = [values.grad_fn], set[Any](), set(trained)
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and leaf not in trained_set:
            raise InputError(
                f"losses: they use a parameter of shape {tuple(leaf.shape)} that requires grad and is not the model's, with no "
                "clipping and no noise.",
                source="a second trainable module beside the model, such as a head, or the parameters of a loss",
                remedy="make it a part of the model, or freeze it: requires_grad_(False).",
            )
        waiting.extend(function for function, _ in node.next_functions)

"""Check of the graph's leaves: only the batch and the model's parameters may require gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import InputError
from lethe.train.clipping.checks.graphs import Node, of_kind
from lethe.train.clipping.hooks import Recording


def refuse_other_parameters(nodes: Iterable[Node], trained: Collection[nn.Parameter]) -> None:
    """Refuse losses in which a trained parameter of something else than the model takes part: nothing would train it.

    Args:
        nodes: of the graph from the losses to its leaves.
        trained: the model's.
    Raises:
        InputError: there is one.
    """
    for node in of_kind(nodes, "AccumulateGrad".__eq__):
        if isinstance(node.variable, nn.Parameter) and node.variable not in trained:
            raise InputError(
                f"the losses depend on a parameter of shape {tuple(node.variable.shape)} that requires grad and is not the model's: "
                "nothing would train it.",
                source="a loss function, or another network, with parameters of its own",
                remedy="make it a part of the model, so that it is trained, clipped and noised with it; or freeze it: "
                "requires_grad_(False), or detach() what it computes.",
            )


def refuse_other_leaves(nodes: Iterable[Node], recording: Recording) -> None:
    """Refuse losses that go back to an earlier batch, whose graph somebody held, or to another tensor that asks for gradients.

    Detached tensors leave no trace in the graph: this sees none of them.

    Args:
        nodes: of the graph from the losses to its leaves.
        recording: of the forward pass.
    Raises:
        InputError: a leaf is no parameter of the model and no input of this batch.
    """
    refuse_other_parameters(nodes, recording.found.names)
    leaves = [node.variable for node in of_kind(nodes, "AccumulateGrad".__eq__)]
    strange = [leaf for leaf in leaves if not isinstance(leaf, nn.Parameter)]
    if not strange:
        return
    known = {id(tensor) for tensor in recording.leaves()}
    if len(strange) == len(leaves) and not any(id(leaf) in known for leaf in leaves):
        return  # nothing of this recording: the backward pass says so
    unknown = [leaf for leaf in strange if id(leaf) not in known]
    inputs = {tensor.untyped_storage().data_ptr() for tensor in _inputs(recording)} if unknown else set[int]()
    for leaf in unknown:
        if leaf.untyped_storage().data_ptr() not in inputs:
            raise InputError(
                f"the losses come from a tensor of shape {tuple(leaf.shape)} that is no parameter, and no input of this batch.",
                source="the graph that autograd recorded: outputs or losses of an earlier batch that were kept, or a tensor with "
                "requires_grad=True",
                remedy="keep nothing of one batch for the next: what it holds of records is clipped with nobody; detach a constant.",
            )


def _inputs(recording: Recording) -> Iterator[Tensor]:
    for calls in recording.calls.values():
        for call in calls:
            yield from (entry for entry in tree_flatten((call.inputs, call.keywords))[0] if isinstance(entry, Tensor))

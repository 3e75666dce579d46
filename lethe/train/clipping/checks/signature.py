"""What a batch's graph is made of: an operation or a layer that is new in it was taken by no batch that was checked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lethe.train.clipping.checks.graphs import Graph, Node, kind_of, nodes_of, of_kind, saved
from lethe.train.clipping.hooks import Recording
from lethe.train.model_state.module_attributes import attribute_of
from lethe.train.model_state.outputs import tensors_of

_LAYER = "a layer"
_TAKING = ("Index", "IndexSelect", "Gather")


def signature(nodes: Iterable[Node], recording: Recording) -> frozenset[Hashable]:
    """Every operation with those that its inputs come from, and every layer that was called: the same however often a loop ran.

    Args:
        nodes: of the graph from the losses, or the outputs, to its leaves.
        recording: of the forward pass.
    """
    layers = {edge.node for calls in recording.calls.values() for call in calls for edge in call.edges if edge is not None}
    kinds = dict(nodes.kinds) if isinstance(nodes, Graph) else dict[Node, str]()
    kinds.update(dict.fromkeys(layers, _LAYER))

    def told(node: Node) -> str:
        if (kind := kinds.get(node)) is None:
            kind = kinds[node] = kind_of(node)
        return kind

    found: set[Hashable] = set()
    for node in nodes:
        inputs = frozenset([told(following) for following, _ in node.next_functions if following is not None])
        found.add((told(node), inputs))
    found.update(recording.found.paths.get(module, "") for module in recording.calls)
    found.update(recording.found.names[parameter] for parameter in recording.tape.aliases)
    return frozenset(found)


def signature_of_outputs(output: object, recording: Recording) -> frozenset[Hashable]:
    """The signature of the graph between a model's outputs and its leaves."""
    found: frozenset[Hashable] = frozenset()
    for entry in tensors_of(output):
        if entry.requires_grad:
            found |= signature(nodes_of(entry), recording)
    return found


def shapes_of(recording: Recording, records: int) -> Iterator[Hashable]:
    """What the layers are given: names and shapes, without the number of records."""
    for module, calls in recording.calls.items():
        for call in calls:
            first = next((entry for entry in (*call.inputs, *call.keywords.values()) if isinstance(entry, Tensor | PackedSequence)), None)
            if isinstance(first, Tensor):
                behind = attribute_of(module, "batch_first", True) is False  # the records stand in the second place
                sizes = (first.shape[:1], first.shape[2:]) if behind else (first.shape[0] // records if first.dim() else 0, first.shape[1:])
                yield recording.found.paths.get(module, ""), sizes


def reorders(nodes: Iterable[Node], recording: Recording) -> bool:
    """Whether rows are taken in another order than they stand in, as where records are sorted: as many rows as there are records.

    What PyTorch sorts by itself around packed sequences is left out: the rule of their layer follows it.

    Args:
        nodes: of the graph from the losses to its leaves.
        recording: of the forward pass.
    """
    nodes = nodes if isinstance(nodes, list) else list(nodes)
    taking = list(of_kind(nodes, _TAKING.__contains__))
    if not taking:
        return False
    own = _by_torch(nodes) if _packed(recording) else set[Node]()
    return any(_moves(node, recording.records or 0) for node in taking if node not in own)


def _moves(node: Node, records: int) -> bool:
    if kind_of(node) == "Index":
        try:
            chosen = node._saved_indices[0]
        except (AttributeError, IndexError, RuntimeError):
            return False
    else:
        chosen = saved(node, "index") if getattr(node, "_saved_dim", 0) == 0 else None
    if not isinstance(chosen, Tensor) or chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.shape[:1] != (records,):
        return False
    order = chosen.detach().reshape(records, -1)
    return bool((order != torch.arange(records, device=order.device)[:, None]).any())


def _packed(recording: Recording) -> bool:
    given = (entry for calls in recording.calls.values() for call in calls for entry in (*call.inputs, *call.keywords.values()))
    return any(isinstance(entry, PackedSequence) for entry in given)


def _by_torch(nodes: Iterable[Node]) -> set[Node]:
    """What sorts before a sequence is packed, and sorts back after it was padded."""
    found: set[Node] = set()
    for node in nodes:
        following = [after for after, _ in node.next_functions if after is not None]
        if kind_of(node) == "PackPaddedSequence":
            found.update(after for after in following if kind_of(after) == "IndexSelect")
        elif kind_of(node) == "IndexSelect":
            behind = [again for after in following if kind_of(after) == "Transpose" for again, _ in after.next_functions]
            if any(after is not None and kind_of(after) == "CopySlices" for after in (*following, *behind)):
                found.add(node)
    return found

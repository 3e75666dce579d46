"""Walks through the autograd graph, from the losses to its leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from torch import Tensor

Node = Any
"""Of autograd: torch names no type for all of them."""

# Operations that hand numbers on as they are, scale, shift or mask them.
_PASSING = frozenset(
    """
    Add AddCmul Alias AsStrided Clone Div Expand MaskedFill MaskedScatter Mul Permute Repeat ReshapeAlias Reshape Slice Squeeze Sub T ToCopy
    Transpose UnsafeView Unsqueeze View Where NativeDropout
    """.split()  # noqa: SIM905
)


def kind_of(node: Node) -> str:
    """The operation's name: "Bmm" of a BmmBackward0."""
    return _kind_named(node.name())


@lru_cache(4096)  # of some dozens of names, each of which comes by hundreds of times in a step
def _kind_named(name: str) -> str:
    return name.rpartition("::")[2].split("Backward")[0]


class Graph(list[Node]):
    """Nodes of a graph, whose kinds are asked for once."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        super().__init__(nodes)
        self.kinds: dict[Node, str] = {node: kind_of(node) for node in self}
        self._by_kind: dict[str, list[Node]] = {}
        for node, kind in self.kinds.items():
            self._by_kind.setdefault(kind, []).append(node)

    def release(self) -> None:
        """Let go of all nodes, and so of what they hold, whoever still has this list."""
        self.clear()
        self.kinds.clear()
        self._by_kind.clear()

    def of(self, wanted: Callable[[str], bool]) -> list[Node]:
        """Those of some kinds."""
        return [node for kind, nodes in self._by_kind.items() if wanted(kind) for node in nodes]


def of_kind(nodes: Iterable[Node], wanted: Callable[[str], bool]) -> Iterable[Node]:
    """The nodes of some kinds.

    Args:
        nodes: a Graph, or any nodes.
        wanted: whether a kind of operation is looked for.
    """
    return nodes.of(wanted) if isinstance(nodes, Graph) else (node for node in nodes if wanted(kind_of(node)))


def nodes_of(losses: Tensor, stops: Iterable[Node] = ()) -> Iterator[Node]:
    """Every node of the graph, each once; of those before `stops` only, if there are any."""
    waiting: list[Node] = [] if losses.grad_fn is None else [losses.grad_fn]
    seen = {*waiting, *stops}
    while waiting:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def nearest(starts: Iterable[Node], wanted: Callable[[str], bool], *, within: int = 24) -> Node | None:
    """The first node of a wanted kind behind some nodes, with only operations between that pass numbers on; None if there is none.

    Args:
        starts: where the walk begins; None among them is left out.
        wanted: whether a kind of operation is looked for.
        within: after how many nodes the walk ends.
    """
    waiting = [node for node in starts if node is not None]
    for _ in range(within):
        if not waiting:
            return None
        node = waiting.pop(0)
        kind = kind_of(node)
        if wanted(kind):
            return node
        if kind in _PASSING:
            waiting += [following for following, _ in node.next_functions if following is not None]
    return None


def saved(node: Node, name: str) -> Tensor | None:
    """A tensor that the node keeps for its backward pass; None if it keeps none of this name."""
    try:
        found = getattr(node, f"_saved_{name}", None)
    except RuntimeError:  # it was freed, or changed in place since: the backward pass will say so
        return None
    return found if isinstance(found, Tensor) else None

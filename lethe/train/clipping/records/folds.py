"""Tensors of records x k rows, told by how they came about: which record each row belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

Node = Any
"""Of autograd: torch names no type for all of them."""

# Each entry of the result is made of the entries at the same place, or of those that are broadcast there.
_ENTRYWISE = frozenset(
    """
    Abs Add Addcdiv Addcmul Alias Atan2 Clamp ClampMax ClampMin Clone Cos Div Elu Erf Exp Expm1 Gelu Hardtanh Hardsigmoid
    Hardswish LeakyRelu Log Log1P LogSigmoid MaskedFill Maximum Minimum Mish Mul NativeDropout Neg Pow Reciprocal Relu Rsqrt Rsub
    Sigmoid Silu Sin Softplus Sqrt Sub Tanh Threshold ToCopy Where
    """.split()  # noqa: SIM905
)
# The entries stay in their order.
_RESHAPING = frozenset("Reshape ReshapeAlias Squeeze Unsqueeze UnsafeView View Alone Anchor".split())  # noqa: SIM905
# Something is done along these dimensions, and nothing along those before.
_ALONG = frozenset("Cat LogSoftmax Mean Narrow Roll Select Slice Softmax Split SplitWithSizes Sum Unbind Stack".split())  # noqa: SIM905
# Of these arguments, and of the first three of attention, the first dimension stays by itself.
_BATCHED: Mapping[str, tuple[int, ...]] = {"Bmm": (0, 1), "Baddbmm": (1, 2), "NativeLayerNorm": (0,), "Mm": (0,), "Addmm": (1,)}


class Folds:
    """Which tensors hold, in the order of their entries, B blocks of the same length, one of each record.

    That is what flattening (B, k, ...) to (B k, ...) gives, and cutting an image into windows; putting k batches one after another does
    not. It is followed from tensor to tensor, back through the graph to the outputs of recorded layers, which have the records first, or
    to the batch itself. What is done on the way by an operation that is not known here is not followed: the shape alone proves nothing.

    Args:
        records: B, or None if it is not known.
    """

    def __init__(self, records: Callable[[], int | None]) -> None:
        self._records = records
        self._batch: list[Tensor] = []
        self._known: dict[tuple[Node, int], bool] = {}
        self._sizes: set[int] = set()

    def begin(self, batch: Iterable[Tensor]) -> None:
        """Note what the model was given."""
        records = self._records()
        self._batch = [tensor for tensor in batch if tensor.dim() > 0 and len(tensor) == records]

    def end(self) -> None:
        """Let go of everything."""
        self._batch, self._known, self._sizes = [], {}, set()

    def note(self, edge: GradientEdge) -> None:
        """Note the output of a recorded layer, whose rows belong to the records in order."""
        self._known[edge.node, edge.output_nr] = True

    def fold(self, tensor: Tensor) -> int | None:
        """k, if the first dimension holds k rows of each record, one record after the other; None if that is not known.

        Args:
            tensor: of B k rows, k > 1.
        """
        records = self._records()
        if not records or tensor.dim() == 0 or len(tensor) <= records or len(tensor) % records:
            return None
        proven = self.in_order(tensor) if tensor.requires_grad else self._lies_in_batch(tensor)
        if not proven:
            return None
        self._sizes.add(len(tensor))
        return len(tensor) // records

    def like(self, tensor: Tensor) -> int | None:
        """k, if a tensor of as many rows was folded before: what is to be proven, see `joined`."""
        records = self._records()
        return len(tensor) // records if records and tensor.dim() > 0 and len(tensor) in self._sizes else None

    def in_order(self, tensor: Tensor) -> bool:
        """Whether a tensor of the graph holds the records' blocks in order."""
        if tensor.grad_fn is None:
            return self._is_batch(tensor)
        return self._walk(tensor.grad_fn, tensor.output_nr)

    def joined(self, edge: GradientEdge, nodes: Iterable[Node]) -> bool:
        """Whether a layer's output is only ever joined, entry by entry, to tensors that hold the records' blocks in order.

        Args:
            edge: of the output.
            nodes: of the graph of the losses.
        """
        shape = _shape(edge.node, edge.output_nr)
        users = [node for node in nodes if any(following == (edge.node, edge.output_nr) for following in node.next_functions)]
        return all(_kind(user) in _ENTRYWISE and _shape(user, 0) == shape and self._walk(user, 0) for user in users)

    def _lies_in_batch(self, tensor: Tensor) -> bool:
        """Whether it is the batch's own memory, in the batch's own order."""
        return any(
            tensor.is_contiguous()
            and given.is_contiguous()
            and tensor.data_ptr() == given.data_ptr()
            and tensor.dtype == given.dtype
            and tensor.numel() == given.numel() > 0
            for given in self._batch
        )

    def _is_batch(self, tensor: Tensor) -> bool:
        return any(tensor is given for given in self._batch)

    def _walk(self, start: Node, place: int) -> bool:
        """Depth first, without recursion: graphs are deep."""
        waiting: list[tuple[Node, int]] = [(start, place)]
        open_: dict[tuple[Node, int], list[tuple[Node, int]]] = {}
        while waiting:
            at = waiting[-1]
            if at in self._known:
                waiting.pop()
                continue
            if at not in open_:
                if _kind(at[0]) == "AccumulateGrad":
                    self._known[at] = self._is_batch(at[0].variable)
                    continue
                open_[at] = self._sources(*at)
            pending = [source for source in open_[at] if source not in self._known and source not in open_]
            if any(self._known.get(source, False) for source in open_[at]):
                self._known[at] = True
                waiting.pop()
            elif pending:
                waiting.append(pending[0])
            else:
                self._known[at] = False
                waiting.pop()
        return self._known[start, place]

    def _sources(self, node: Node, place: int) -> list[tuple[Node, int]]:
        """The tensors of which one has to hold the records' blocks in order for this one to do so."""
        kind, shape = _kind(node), _shape(node, place)
        sources = [(source, at) for source, at in node.next_functions if source is not None]
        if shape is None:
            return []
        if kind in _RESHAPING:
            return [source for source in sources if _numbers(source) == prod(shape)]
        if kind in _ENTRYWISE:
            return [source for source in sources if _shape(*source) == shape]
        if kind in _ALONG:
            return [source for source in sources if self._apart(_shape(*source), _dimensions(node, _shape(*source)))]
        if kind in ("Transpose", "Permute", "T", "Expand", "ConstantPadNd"):
            return [source for source in sources if self._apart(_shape(*source), _moved(node, kind, _shape(*source), shape))]
        if kind in _BATCHED or kind.startswith("ScaledDotProduct"):
            places = _BATCHED.get(kind, (0, 1, 2))
            kept = [node.next_functions[place] for place in places if place < len(node.next_functions)]
            return [(source, at) for source, at in kept if source is not None and self._first_alone(_shape(source, at), shape)]
        return []

    def _apart(self, shape: Sequence[int] | None, touched: Sequence[int] | None) -> bool:
        """Whether the dimensions before the touched ones hold whole records."""
        records = self._records()
        if not records or shape is None or touched is None:
            return False
        before = min(touched, default=len(shape))
        return any(prod(shape[:count]) % records == 0 for count in range(1, before + 1))

    def _first_alone(self, source: Sequence[int] | None, shape: Sequence[int]) -> bool:
        records = self._records()
        return bool(records) and bool(source) and bool(shape) and source[0] == shape[0] and shape[0] % records == 0  # pyright: ignore


def _kind(node: Node) -> str:
    return node.name().rpartition("::")[2].split("Backward")[0].lstrip("_")


def _shape(node: Node, place: int) -> tuple[int, ...] | None:
    if _kind(node) == "AccumulateGrad":
        return tuple(node.variable.shape)
    known = node._input_metadata
    return tuple(known[place].shape) if place < len(known) else None


def _numbers(source: tuple[Node, int]) -> int:
    shape = _shape(*source)
    return -1 if shape is None else prod(shape)


def _whole(number: int, rank: int) -> int:
    """A dimension from the front: nodes keep negative ones as they wrap."""
    number = number - 2**64 if number >= 2**63 else number
    return number + rank if number < 0 else number


def _dimensions(node: Node, shape: Sequence[int] | None) -> list[int] | None:
    """The dimensions along which an operation works; None if it does not say."""
    if shape is None:
        return None
    for name in ("_saved_dim", "_saved_dims"):
        told = getattr(node, name, None)
        if told == () or told == []:
            return [0]  # along all of them
        if told is not None:
            return [_whole(dimension, len(shape)) for dimension in ([told] if isinstance(told, int) else told)]
    return None


def _moved(node: Node, kind: str, before: Sequence[int] | None, after: Sequence[int]) -> list[int] | None:
    """The dimensions that are moved or changed in length."""
    if before is None:
        return None
    rank = len(before)
    if kind == "T":
        return [0]
    if kind == "Transpose":
        both = {_whole(node._saved_dim0, rank), _whole(node._saved_dim1, rank)}
        return sorted(both) if len(both) > 1 else []
    if kind == "Permute":
        return [place for place, dimension in enumerate(node._saved_dims) if _whole(dimension, rank) != place]
    if kind == "ConstantPadNd":
        pads = node._saved_pad
        return [rank - 1 - place for place in range(len(pads) // 2) if pads[2 * place] or pads[2 * place + 1]]
    # Expanded: a dimension more, in front, moves all others.
    return [0] if len(after) != rank else [place for place in range(rank) if before[place] != after[place]]

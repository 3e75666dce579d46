"""Check of losses scaled by numbers that all records of a batch share: a count of its tokens, or one that changes between batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor

from lethe.errors import InputError
from lethe.train.clipping.checks.graphs import Node
from lethe.train.clipping.checks.shared_numbers import SharedNumbers, counted_tokens, may_count, shared_numbers, token_counts

_OWN = (
    "take the mean over each record's own tokens, losses = per_token.sum(1) / (labels != -100).sum(1), or divide by a constant, not by "
    "the tokens of the batch (num_items_in_batch); "
)


class SharedFactors:
    """Compares shared factors of the losses with counts of their batch's tokens, and from batch to batch.

    A count is refused at once. A number that changes may be a weight that follows a plan; only the function that computes the loss could
    tell (`CheckedLoss`), and only if it is the same function in all batches: what was put into one made anew comes from outside of it.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, ...], SharedNumbers] = {}
        self._held: tuple[float, ...] | None = None

    def refuse(self, nodes: Iterable[Node], records: int, batch: Sequence[Tensor], asked: Callable[..., Any] | None) -> None:
        """Refuse losses that a number of the batch enters.

        Args:
            nodes: of the graph between the losses and the model's layers.
            records: B.
            batch: the tensors that the loader gave.
            asked: the function that computed the losses and was checked; None: nobody knows which did.
        Raises:
            InputError: there is such a number.
        """
        told = shared_numbers(nodes, records)
        countable = token_counts(batch) if records > 1 and any(may_count(value, batch) for _, value in told) else []
        for kind, value in told:
            # An exponent scales nothing: many a layer squares, and a small batch may well have two tokens. A record alone may be divided by
            # its own tokens; and its graph, which is followed through the whole model, has constants that few tokens are counted by.
            if kind != "Pow" and (counts := counted_tokens(value, countable)) is not None:
                raise InputError(
                    f"losses: all are scaled by {value:g} ({kind.lower()}), which counts {counts}: one record's tokens then change the "
                    "gradients of all the others, however each is clipped.",
                    source="the graph between the model's layers and the losses",
                    remedy=_OWN + "if the number is a constant that only happens to be this count, begin with a batch of another size.",
                )
        kinds = tuple(kind for kind, _ in told)
        before = self._before.setdefault(kinds, told)
        held, known = None if asked is None else _numbers_held(asked), self._held
        self._held = held
        if asked is not None and (known is None or known == held):
            return
        for (kind, value), (_, first) in zip(told, before, strict=True):
            if value != first:
                raise InputError(
                    f"losses: a number that all records of the batch share was {first:g} and is {value:g} now ({kind.lower()}): if it is "
                    "made of the batch, such as its number of records or tokens, each loss depends on the others.",
                    source="the graph between the model's layers and the losses",
                    remedy=_OWN + "a weight that follows a plan is accepted where one function computes all batches' losses and finds the "
                    "weight by itself: losses = engine.losses(criterion, outputs, targets).",
                )


def _numbers_held(function: Any) -> tuple[float, ...]:
    """The numbers that a function was made with: in its closure, its defaults, or as arguments given beforehand."""
    if isinstance(function, partial):
        given = (*function.args, *function.keywords.values())
        return (*_numbers(given), *_numbers_held(function.func))
    if not isinstance(function, FunctionType):
        return ()
    cells: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    return _numbers((*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))


def _numbers(values: Iterable[Any]) -> tuple[float, ...]:
    single = (value.item() if isinstance(value, Tensor) and value.numel() == 1 else value for value in values)
    return tuple(float(value) for value in single if isinstance(value, bool | int | float))

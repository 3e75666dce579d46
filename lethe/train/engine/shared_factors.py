"""Check of losses scaled by numbers that all records of a batch share and that change between batches."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from lethe.errors import InputError
from lethe.train.clipping.checks.graphs import Node, kind_of

_NAMES = ("_saved_self", "_saved_other", "_saved_exponent", "_saved_end", "_saved_weight")
_KINDS = ("Mul", "Div", "Pow", "Lerp")

_Factors = list[tuple[str, float]]


class SharedFactors:
    """Compares shared factors of the losses from batch to batch: also a count of tokens, through which no gradient flows.

    A number that changes may be a weight that follows a plan; only the function that computes the loss could tell (`CheckedLoss`).
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, ...], _Factors] = {}

    def refuse_changes(self, nodes: Iterable[Node], records: int) -> None:
        """Refuse losses that a shared number enters which was another one in an earlier batch.

        Args:
            nodes: of the graph between the losses and the model's layers.
            records: B.
        Raises:
            InputError: there is such a number.
        """
        told = [(kind, value) for node in nodes if (kind := kind_of(node)) in _KINDS for value in _shared(node, records)]
        kinds = tuple(kind for kind, _ in told)
        before = self._before.setdefault(kinds, told)
        for (kind, value), (_, known) in zip(told, before, strict=True):
            if value != known:
                raise InputError(
                    f"losses: a number that all records of the batch share was {known:g} and is {value:g} now ({kind.lower()}): if it is "
                    "made of the batch, such as its number of records or tokens, each loss depends on the others.",
                    source="the graph between the model's layers and the losses",
                    remedy="divide each record's loss by what is its own, or by a constant; a weight that follows a plan is accepted where "
                    "the loss can be asked: losses = engine.losses(criterion, outputs, targets).",
                )


def _shared(node: Node, records: int) -> Iterable[float]:
    for name in _NAMES:
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            continue
        if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex() and (value.dim() == 0 or records != 1):
            value = value.item()
        if isinstance(value, bool | int | float):
            yield float(value)

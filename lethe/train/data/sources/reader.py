"""From indices to collated records of a map-style data set, in this process or in workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

from lethe.errors import InputError
from lethe.train.core.comparison import first_line
from lethe.train.data.sources.apart import CollateCheck
from lethe.train.data.sources.base import Tensors, require_rows
from lethe.train.data.sources.fields import Fields, stacked
from lethe.train.data.sources.one_by_one import OneByOne

Collate = Callable[[list[Any]], Any]


class Padded(tuple[Tensor, ...]):
    """A batch of which some records were padded, with `alone`: these as they are collated alone, by their place."""

    alone: dict[int, Tensors]


class Reader:
    """Reads and collates records; functions that see several records at once are checked.

    Args:
        dataset: map-style.
        collate: of its records; None: PyTorch's own, which keeps them apart, and of mappings `stacked`, which does so too.
        asked: False: nothing is looked at.
        leave_out: fields of mappings that are not read, where there is no collate function.

    Attributes:
        declared: what cannot be seen of the data set, or was not looked at.
    """

    def __init__(self, dataset: Any, collate: Collate | None, *, asked: bool, leave_out: Collection[str] = ()) -> None:
        self._dataset, self._collate = dataset, default_collate if collate is None else collate
        self._one_by_one = OneByOne(dataset)
        several = callable(getattr(dataset, "__getitems__", None))
        self._collates = CollateCheck("collate") if asked and collate is not None else None
        self._gets = CollateCheck("the data set's __getitems__") if asked and several else None
        self._kind = kind = type(dataset).__name__
        self._leave_out = frozenset(leave_out)
        self._fields = Fields("data" if collate is None else "collate")
        self.declared = f"record i of {kind} is made of record i alone, and of random numbers that nothing else is made of"
        if several or collate is not None:
            whats = [*(["collate"] if collate is not None else []), *([f"{kind}.__getitems__"] if several else [])]
            where = "in batches other than those that were checked" if asked else "(declared_apart=True: not looked at)"
            self.declared += f"; {' and '.join(whats)} make each row of its own record alone {where}"

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of a batch's tensors, once there was one; None: they have none."""
        return self._fields.names or None

    def __call__(self, indices: list[int]) -> Tensors:
        """The batch.

        Raises:
            InputError: it is none, or a row is made of other records.
        """
        records = self._records(indices)
        kept = _guarded(records)
        batch = require_rows(self._batch(records), len(indices), self._kind)
        alone: dict[int, Tensors] = {}
        if self._collates is not None and self._collates.due(batch, kept):
            alone = self._collates.require(lambda some: self._batch(_guarded(some)), kept, batch)
        if self._gets is not None and self._gets.due(batch):
            alone |= self._gets.require(lambda some: self._batch(self._records(some)), indices, batch)
        if not alone:
            return batch
        padded = Padded(batch)
        padded.alone = alone
        return padded

    def _records(self, indices: list[int]) -> Any:
        several = getattr(self._dataset, "__getitems__", None)
        records = several(indices) if callable(several) else self._one_by_one(indices)
        if not records:
            raise InputError("data: the data set returned no record where some were asked for.")
        return records

    def _batch(self, records: Any) -> Tensors:
        if isinstance(records[0], Mapping) and self._collate is default_collate:
            return self._fields.in_order(stacked(records, self._leave_out), len(records))
        collated = self._collated(records)
        if isinstance(collated, Mapping):
            return self._fields.in_order(collated, len(records))
        if self._fields.names:
            raise InputError(f"collate: made a {type(collated).__name__}; the first batch was a mapping.")
        parts = tuple(collated) if isinstance(collated, tuple | list) else (collated,)
        return require_rows(parts, len(records), "collate")

    def _collated(self, records: Any) -> Any:
        try:
            return self._collate(records)
        except InputError:
            raise
        except Exception as error:  # whatever a collate function makes of records that do not fit together
            if self._collate is default_collate and len(records) == 1:
                raise  # no matter of how they fit together
            raise InputError(
                f"collate: of {len(records)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the collate function, or records whose parts disagree in length",
                remedy="pad each part of a record to one length: PadTo(length=...), or DataCollatorWithPadding(tokenizer).",
            ) from error


def _guarded(records: Any) -> list[Any]:
    """The records, of which a collate function may take entries out without their missing the next time."""
    return [dict(record) if type(record) is dict else list(record) if type(record) is list else record for record in records]

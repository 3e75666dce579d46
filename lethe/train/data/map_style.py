"""Map-style data sets of PyTorch and their like: a length, and record i for every i."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from lethe.errors import InputError
from lethe.train.core.comparison import first_line
from lethe.train.core.samplers import Batch
from lethe.train.data.apart import ApartCheck
from lethe.train.data.sources import Tensors, fetched


class Padded(tuple[Tensor, ...]):
    """A batch of which some records were padded, with `alone`: these as they are collated alone, by their place."""

    alone: dict[int, Tensors]


class MapStyleSource:
    """A data set with `len(dataset)` and `dataset[i]`; its batches are collated to tensors.

    Random augmentation inside `dataset[i]` is allowed: it works on one record alone. That no record looks at another is `declared`. What
    sees several records at once, a collate function or the data set's own `__getitems__`, is given some of them again, alone, in batches
    1, 2, 4, 8, ... (`ApartCheck`).

    Args:
        dataset: map-style, with a length that stays the same.
        collate: from a list of records to a tensor, or a tuple or mapping of tensors, with a row for each; None: PyTorch's own, and of
            records that are mappings the tensors of each field in one.
        leave_out: fields of records that are mappings which are not read, such as texts; where there is no collate function.
        declared_apart: True declares that each row of a batch is made of its own record, and of random numbers that are its own; nothing is
            looked at then. Needed where collate or `__getitems__` draw random numbers: nobody can tell these from a mixture.
        reading: options of the DataLoader that reads it: num_workers, multiprocessing_context, prefetch_factor, pin_memory.

    A record, or what a collate function makes of a batch, may be a mapping: the model is then given its tensors, arrays, numbers or lists
    of numbers by their names.

    Attributes:
        declared: what a certificate rests on besides, of the data.
        fields: the names of a record's parts, in the order of the tensors, which is that of the alphabet; None: they have none.

    Raises:
        InputError: no length, no records, or a first record that cannot be collated to tensors.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        leave_out: Collection[str] = (),
        declared_apart: bool = False,
        **reading: Any,
    ) -> None:
        self.dataset, self.reading, self._collate, self._leave_out = dataset, reading, collate, frozenset(leave_out)
        self.fields: tuple[str, ...] | None = None
        self._several = callable(getattr(dataset, "__getitems__", None))
        kind = type(dataset).__name__
        makers = [*(["collate"] if collate else []), *([f"{kind}.__getitems__"] if self._several else [])]
        self._apart = ApartCheck(" and ".join(makers)) if makers and not declared_apart else None
        checked = "(declared_apart=True: not looked at)" if declared_apart else "in batches other than those that were checked"
        besides = f"; {' and '.join(makers)} make each row of its own record alone {checked}" if makers else ""
        self.declared = (f"record i of {kind} is made of record i alone, and of random numbers that nothing else is made of{besides}",)
        self._records = length_of(dataset)
        fetched(self, slice(0, 1))

    def __len__(self) -> int:
        return self._records

    def fetch(self, batch: Batch) -> Padded:
        """The records of a batch, read and collated in this process.

        Raises:
            InputError: the data set's length has changed, or a row is made of other records.
        """
        if (now := length_of(self.dataset)) != self._records:
            raise InputError(f"data: the data set had {self._records} records and now has {now}; their number is part of the guarantee.")
        indices = list(range(self._records)[batch]) if isinstance(batch, slice) else batch.tolist()
        records = self._read(indices)
        made = Padded(self._batch(records))
        made.alone = {}
        if self._apart is not None and all(isinstance(part, Tensor) and part.dim() and len(part) == len(records) for part in made):
            again = (lambda place: self._read([indices[place]])) if self._several else (lambda place: [records[place]])
            made.alone = self._apart(lambda place: self._batch(again(place)), records, made)
        return made

    def _read(self, indices: list[int]) -> Sequence[Any]:
        if self._several:
            return self.dataset.__getitems__(indices)
        # Copies: a data set may fill one array anew for each record.
        return [tree_map(_own, self.dataset[index], is_leaf=_numbers) for index in indices]

    def _batch(self, records: Sequence[Any]) -> Tensors:
        kept: list[Any] = [record.copy() if type(record) in (dict, list) else record for record in records]  # collators may take parts out
        try:
            if kept and isinstance(kept[0], Mapping) and self._collate is None:
                kept = [{name: as_field(name, part) for name, part in record.items() if name not in self._leave_out} for record in kept]
            batch = (self._collate or default_collate)(kept)
        except InputError:
            raise
        except Exception as error:  # whatever a collate function makes of records that do not fit together
            raise InputError(
                f"collate: of {len(kept)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the collate function, or records that are no numbers, or whose parts disagree in length",
                remedy="pad each part of a record to one length: torch.nn.functional.pad in dataset[i], or the tokeniser's "
                "padding='max_length'; or give the collate function that pads: DataCollatorWithPadding(tokenizer).",
            ) from error
        if isinstance(batch, Mapping):
            return self._by_name({name: part for name, part in batch.items() if part is not None})
        if self.fields:
            raise InputError(f"collate: made a {type(batch).__name__}; the first batch was a mapping.")
        return tuple(batch) if isinstance(batch, tuple | list) else (batch,)

    def _by_name(self, batch: dict[str, Any]) -> Tensors:
        """The tensors of a batch in the order of `fields`: those of the first batch, which all others must have."""
        names = tuple(sorted(batch))
        if not names or names != (self.fields or names):
            said = f"; the first was of {', '.join(self.fields)}" if self.fields else ""
            raise InputError(f"collate: made a batch of {', '.join(names) or 'nothing'}{said}.", remedy="give every record all its parts.")
        self.fields = names
        return tuple(batch[name] for name in names)


def as_field(name: Any, entry: Any) -> Tensor:
    """The numbers of a field, as `torch.as_tensor` reads them.

    Raises:
        InputError: they are none.
    """
    try:
        return torch.as_tensor(entry)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"data: field {name} cannot become a tensor: {type(entry).__name__}: {first_line(error)}",
            source="texts, missing values, or lists with parts of different kinds or lengths",
            remedy=f"take it out: dataset.remove_columns([{name!r}]), or MapStyleSource(dataset, leave_out=[{name!r}]); or make numbers of "
            "it beforehand.",
        ) from error


def _own(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf.copy() if isinstance(leaf, np.ndarray | list) else leaf


def _numbers(part: Any) -> bool:
    return isinstance(part, list) and len(part) > 0 and isinstance(part[0], int | float)


def length_of(dataset: Any) -> int:
    """The number of records of a map-style data set; an InputError where it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise InputError(
            f"data: {type(dataset).__name__} has no length; the number of records is a public part of the guarantee.",
            remedy="give a map-style data set: one with len(dataset) and dataset[i]; or store the records as .npy or Parquet files.",
        ) from error

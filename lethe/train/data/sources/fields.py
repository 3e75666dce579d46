"""Fields: records whose parts have names, such as a tokeniser's, as tuples of tensors in one order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.data.sources.base import Source, Tensors

_MASK = "attention_mask"


class Fields:
    """Names of a record's parts, in alphabetical order: those of the first batch, which all others must have.

    Args:
        what: makes the batches, for errors: "collate".
        remedy: for a batch that is empty.
    """

    def __init__(self, what: str, remedy: str = "give every record its parts: {'input_ids': ..., 'labels': ...}.") -> None:
        self._what, self._remedy = what, remedy
        self.names: tuple[str, ...] = ()

    def in_order(self, batch: Mapping[Any, Any], rows: int) -> Tensors:
        """The tensors of a batch in the order of `names`; entries that are None are left out.

        Args:
            batch: name -> a tensor with a row for each record.
            rows: how many records there are.
        Raises:
            InputError: other names than before, or something else than such tensors.
        """
        given = {_text(key, self._what): value for key, value in batch.items() if value is not None}
        if not given:
            raise InputError(f"{self._what}: made an empty batch.", remedy=self._remedy)
        for key, value in given.items():
            if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != rows:
                got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                packed = isinstance(value, Tensor) and value.dim() > 1 and len(value) == 1
                raise InputError(
                    f"{self._what}: {key} is {got}; it needs a tensor with {rows} rows, one for each record.",
                    source="packing: several records in one row, whose gradients cannot be told apart" if packed else None,
                    remedy="give each record a row of its own, padded: no packing=True, no DataCollatorWithFlattening."
                    if packed
                    else "leave columns that are no numbers out, and let each record have its own row.",
                )
        require_one_width(given, self._what)
        names = tuple(sorted(given))
        if names != (self.names or names):
            raise InputError(
                f"{self._what}: made a batch of {', '.join(names)}; the first was of {', '.join(self.names)}.",
                remedy="give every record the same parts.",
            )
        self.names = names
        return tuple(given[name] for name in names)


def stacked(records: Sequence[Any], leave_out: Collection[str] = ()) -> dict[str, Tensor]:
    """Records that are mappings, as one tensor for each field: numbers as `torch.tensor` reads them, rows one below the other.

    Args:
        records: each from names to tensors, arrays, numbers or lists of numbers.
        leave_out: fields that are not read.
    Raises:
        InputError: a field that cannot become a tensor, or whose tensors differ in shape or type; or records with other fields.
    """
    keys = [key for key in records[0] if key not in leave_out]
    for place, record in enumerate(records):
        if not isinstance(record, Mapping) or {key for key in cast(Mapping[Any, Any], record) if key not in leave_out} != set(keys):
            got = f"has {', '.join(map(str, record)) or 'no fields'}" if isinstance(record, Mapping) else f"is {type(record).__name__}"
            raise InputError(
                f"data: record {place} of a batch {got}; the first one has {', '.join(map(str, keys))}.",
                remedy="give every record the same parts.",
            )
    return {key: _column(str(key), [record[key] for record in records]) for key in keys}


def as_rows(name: str, values: Any) -> Tensor | np.ndarray[Any, Any]:
    """A field of all records: as it is if it is a tensor or an array, else what its entries are stacked to.

    Args:
        name: of the field.
        values: one row for each record.
    Raises:
        InputError: no such rows.
    """
    if isinstance(values, Tensor | np.ndarray):
        return values
    if not isinstance(values, list | tuple):
        raise InputError(
            f"data: field {name} is {type(values).__name__}; it needs a tensor or an array, with one row for each record.",
            remedy="of a DatasetDict, or another mapping of data sets, give one: data['train']."
            if hasattr(type(values), "__getitem__")
            else None,
        )
    return _column(name, list(values)) if values else torch.zeros(0)


def named(fields: object, parts: int) -> tuple[str, ...] | None:
    """Names that were given to the parts of a source; None: none were.

    Args:
        fields: as they were given.
        parts: how many there are to name.
    Raises:
        InputError: not one text for each part, or a name twice.
    """
    if fields is None:
        return None
    names = tuple(cast(Sequence[Any], fields)) if isinstance(fields, list | tuple) else ()
    if len(names) != parts or len(set(names)) != parts or not all(isinstance(name, str) for name in names):
        raise InputError(f"fields: got {fields!r}; it needs {parts} names, one for each part and none twice.")
    return names


def fields_of(source: Source) -> tuple[str, ...] | None:
    """The names of a source's tensors, in their order; None: they have none, and a record is (inputs, ..., target)."""
    found = getattr(source, "fields", None)
    return found if isinstance(found, tuple) and found and all(isinstance(name, str) for name in found) else None


def refuse_fields(source: Source, what: str) -> Source:
    """The source, if its records are (inputs, ..., target).

    Raises:
        InputError: their parts have names, and `what` goes by their places.
    """
    if (found := fields_of(source)) is not None:
        raise InputError(
            f"data: a record is a mapping with the keys {', '.join(found)}; {what} takes (features, target).",
            remedy="give a tuple of arrays, or a collate function that picks the two in order.",
        )
    return source


AS_LONG = (_MASK, "token_type_ids", "position_ids", "special_tokens_mask")
"""Entries of a tokeniser's record that are as long as its input_ids."""


def require_one_width(batch: Mapping[str, Any], what: str) -> None:
    """Refuse tokens whose mask, types or positions are of another length.

    Args:
        batch: name -> tensor.
        what: made it, for the error.
    Raises:
        InputError: they disagree.
    """
    tokens = batch.get("input_ids")
    if tokens is None or tokens.ndim != 2:
        return
    for key in AS_LONG:
        if key in batch and batch[key].ndim >= 2 and batch[key].shape[-1] != tokens.shape[1]:
            raise InputError(
                f"{what}: {key} has shape {tuple(batch[key].shape)}, and input_ids {tuple(tokens.shape)}: they disagree in length.",
                source="the data, the collate function, or the tokenizer's output",
                remedy="pad all parts of a record alike.",
            )


def attending(batch: dict[str, Tensor], counted: Tensor) -> dict[str, Tensor]:
    """The batch, in which rows of zeros that are no records attend: a row that attends to nothing is NaN in some kinds of attention.

    Args:
        batch: name -> tensor; its attention_mask is written to.
        counted: shape (rows,), False for rows that are no records.
    """
    mask = batch.get(_MASK)
    if mask is not None and not bool(counted.all()):
        mask[~counted] = torch.ones((), dtype=mask.dtype, device=mask.device)
    return batch


def _text(key: Any, what: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"{what}: a batch has the key {key!r}; keys are names of the model's arguments.")
    return key


def _column(name: str, entries: list[Any]) -> Tensor:
    rows = [_tensor(name, entry) for entry in entries]
    first = rows[0]
    for place, row in enumerate(rows):
        if row.shape != first.shape:
            raise InputError(
                f"data: field {name} has shape {tuple(row.shape)} in record {place} of a batch, and {tuple(first.shape)} in the first.",
                source="records that are stacked as they are",
                remedy="pad all to one length: MapStyleSource(dataset, collate=PadTo(length=..., by_name=True)), or give a DataLoader with "
                "the collate_fn that pads.",
            )
        if row.dtype != first.dtype:
            raise InputError(f"data: field {name} is {row.dtype} in record {place} of a batch, and {first.dtype} in the first.")
    return torch.stack(rows)


def _tensor(name: str, entry: Any) -> Tensor:
    try:
        return torch.as_tensor(entry)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        ragged = isinstance(entry, list | tuple) and not any(isinstance(one, str | None) for one in entry)
        raise InputError(
            f"data: field {name} cannot become a tensor: it is {type(entry).__name__}{' with parts of different kinds' if ragged else ''}.",
            source="a record that is a mapping",
            remedy=f"take it out: dataset.remove_columns([{name!r}]), or MapStyleSource(dataset, leave_out=[{name!r}]); or make numbers of "
            "it beforehand.",
        ) from error

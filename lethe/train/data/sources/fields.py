"""Fields: records whose parts have names, such as a tokeniser's, as tuples of tensors in one order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.data.sources.base import Source, Tensors

_MASK = "attention_mask"
AS_LONG = (_MASK, "token_type_ids", "position_ids", "special_tokens_mask")
"""Entries of a tokeniser's record that are as long as its input_ids."""


class Fields:
    """Names of a record's parts, in alphabetical order: those of the first batch, which all others must have.

    Args:
        what, remedy: for errors: what makes the batches, and what to do where one is empty.
    """

    def __init__(self, what: str, remedy: str = "give every record its parts: {'input_ids': ..., 'labels': ...}.") -> None:
        self._what, self._remedy = what, remedy
        self.names: tuple[str, ...] = ()

    def in_order(self, batch: Mapping[Any, Any], rows: int) -> Tensors:
        """The tensors of a batch of so many rows in the order of `names`; entries that are None are left out.

        Raises:
            InputError: other names than before, or something else than such tensors.
        """
        given = {key: value for key, value in batch.items() if value is not None}
        if not given:
            raise InputError(f"{self._what}: made an empty batch.", remedy=self._remedy)
        for key, value in given.items():
            if not isinstance(key, str):
                raise InputError(f"{self._what}: a batch has the key {key!r}; keys are names of the model's arguments.")
            if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != rows:
                got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise InputError(
                    f"{self._what}: {key} is {got}; it needs a tensor with {rows} rows, one for each record.",
                    source="text; or packing: several records in one row, whose gradients cannot be told apart",
                    remedy="leave columns that are no numbers out, and give each record a row of its own, padded: no packing=True, no "
                    "DataCollatorWithFlattening.",
                )
        require_one_width(given, self._what)
        names = tuple(sorted(given))
        if names != (self.names or names):
            raise InputError(f"{self._what}: made a batch of {', '.join(names)}; the first was of {', '.join(self.names)}.")
        self.names = names
        return tuple(given[name] for name in names)


def stacked(records: Sequence[Any], leave_out: Collection[str] = ()) -> dict[str, Tensor]:
    """Records that are mappings, as one tensor for each field that is not left out: numbers as `torch.tensor` reads them.

    Raises:
        InputError: a field that cannot become a tensor, or whose tensors differ in shape or type; or records with other fields.
    """
    names = [name for name in records[0] if name not in leave_out]
    for place, record in enumerate(records):
        has = [name for name in record if name not in leave_out] if isinstance(record, Mapping) else [type(record).__name__]
        if set(has) != set(names):
            listed = ", ".join(map(str, names))
            raise InputError(f"data: record {place} of a batch is of {', '.join(map(str, has))}; the first one is of {listed}.")
    return {name: column(str(name), [record[name] for record in records]) for name in names}


def column(name: str, entries: Sequence[Any]) -> Tensor:
    """The entries of a field, one below the other.

    Raises:
        InputError: they are no numbers, or differ in shape or type.
    """
    try:
        rows = [torch.as_tensor(entry) for entry in entries]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"data: field {name} cannot become a tensor: its first entry is {type(entries[0]).__name__}.",
            source="texts, missing values, or lists with parts of different kinds",
            remedy=f"take it out: dataset.remove_columns([{name!r}]), or MapStyleSource(dataset, leave_out=[{name!r}]); or make numbers of "
            "it beforehand.",
        ) from error
    kinds = [f"{row.dtype} of shape {tuple(row.shape)}" for row in rows]
    for place, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise InputError(
                f"data: field {name} is {kind} in record {place} of a batch, and {kinds[0]} in the first.",
                remedy="pad all to one length: MapStyleSource(dataset, collate=PadTo(length=..., by_name=True)), or give a DataLoader with "
                "the collate_fn that pads.",
            )
    return torch.stack(rows) if rows else torch.zeros(0)


def fields_of(source: Source) -> tuple[str, ...] | None:
    """The names of a source's tensors, in their order; None: they have none, and a record is (inputs, ..., target)."""
    found = getattr(source, "fields", None)
    return found if isinstance(found, tuple) and found and all(isinstance(name, str) for name in found) else None


def refuse_fields(source: Source, what: str) -> Source:
    """The source, if its records are (inputs, ..., target); if their parts have names, an InputError: `what` goes by their places."""
    if (found := fields_of(source)) is not None:
        raise InputError(
            f"data: a record is a mapping with the keys {', '.join(found)}; {what} takes (features, target).",
            remedy="give a tuple of arrays, or a collate function that picks the two in order.",
        )
    return source


def require_one_width(batch: Mapping[str, Tensor | np.ndarray[Any, Any]], what: str) -> None:
    """Refuse tokens whose mask, types or positions are of another length."""
    tokens = batch.get("input_ids")
    if tokens is None or tokens.ndim != 2:
        return
    for key in AS_LONG:
        if key in batch and batch[key].ndim >= 2 and batch[key].shape[-1] != tokens.shape[1]:
            shapes = f"{tuple(batch[key].shape)}, and input_ids {tuple(tokens.shape)}"
            raise InputError(f"{what}: {key} has shape {shapes}: they disagree in length.", remedy="pad all parts of a record alike.")


def attending(batch: dict[str, Tensor], counted: Tensor) -> dict[str, Tensor]:
    """The batch, in which rows of zeros that are no records (`counted` False) attend: in some kinds of attention a row without is NaN."""
    mask = batch.get(_MASK)
    if mask is not None and not bool(counted.all()):
        mask[~counted] = torch.ones((), dtype=mask.dtype, device=mask.device)
    return batch

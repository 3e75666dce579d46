"""PadTo: a collate function that pads every record to one length, so that no record's row depends on the others' lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.data.sources.base import Tensors, require_whole
from lethe.train.data.sources.fields import AS_LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class PadTo:
    """Collates records of different lengths to one length that is fixed before any record is seen.

        source = MapStyleSource(dataset, collate=PadTo(length=128, values={"labels": -100}))

    A batch that is padded to its longest record lets that record change how far all the others are padded, and so their gradients wherever
    the padding enters: in a mean over places, in a normalisation. Padded to one length, a record's row is a function of the record alone,
    padding included; `fit` and `PrivacyEngine` take it as it is.

    Args:
        length: of every padded entry, >= 1; public.
        keys: of records that are mappings, such as a tokeniser's: which entries make up the batch, in this order. None: all, in the order
            of the first record that is collated.
        value: what entries are padded with.
        values: other values for some entries, by key or by place: {"labels": -100} or {1: -100}.
        side: "right" pads after the record, "left" before it.
        truncate: cut longer records; else they are refused.
        by_name: of records that are mappings: a batch is one too, and the model is given its entries by their keys; else they go to it in
            order, and the last is the target.

    Entries are tensors, arrays or lists of numbers; those with at least one dimension are padded along the first, the others are stacked.

    Raises:
        InputError: an argument that cannot be used; when called, an entry that is too long or no numbers, or records that are not alike.
    """

    length: int
    keys: tuple[str, ...] | None = None
    value: float = 0
    values: Mapping[str | int, float] = field(default_factory=dict)
    side: str = "right"
    truncate: bool = False
    by_name: bool = False

    def __post_init__(self) -> None:
        require_whole("length", self.length, 1)
        if self.side not in ("right", "left"):
            raise InputError(f"side: got {self.side!r}; it needs 'right' or 'left'.")
        if self.keys is not None:
            object.__setattr__(self, "keys", tuple(self.keys))
        for name in ("truncate", "by_name"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: got {getattr(self, name)!r}; it needs True or False.")

    def __call__(self, records: Sequence[Any]) -> Tensors | dict[str, Tensor]:
        """The batch: one tensor for each entry, shape (B, length, ...) or, of entries without a length, (B,)."""
        if not records:
            raise InputError("records: got none; a batch needs one at least.")
        keys = self._keys(records[0])
        columns = [[_entry(record, key) for record in records] for key in keys]
        _require_alike(dict(zip(keys, columns, strict=True)))
        made = tuple(self._column(key, column) for key, column in zip(keys, columns, strict=True))
        if not self.by_name:
            return made
        if not isinstance(records[0], Mapping):
            raise InputError(f"by_name: True, and a record is {type(records[0]).__name__}; only mappings have names.")
        return dict(zip(map(str, keys), made, strict=True))

    def _keys(self, record: Any) -> tuple[Any, ...]:
        if isinstance(record, Mapping):
            return tuple(record) if self.keys is None else self.keys
        if self.keys is not None:
            raise InputError(f"keys: got {self.keys!r}, and a record is {type(record).__name__}; only mappings have keys.")
        return tuple(range(len(record))) if isinstance(record, tuple | list) else (None,)

    def _column(self, key: Any, entries: list[Any]) -> Tensor:
        try:
            tensors = [torch.as_tensor(entry) for entry in entries]
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"data: entry {key!r} of a record is no tensor and no list of numbers: {error}.") from error
        value = self.values.get(key, self.value)
        return torch.stack([self._padded(key, tensor, value) if tensor.dim() else tensor for tensor in tensors])

    def _padded(self, key: Any, tensor: Tensor, value: float) -> Tensor:
        if len(tensor) > self.length and not self.truncate:
            raise InputError(
                f"data: entry {key!r} of a record has {len(tensor)} places; it needs at most {self.length}.",
                source="PadTo.length",
                remedy="choose a larger length, by what is publicly known of the records; or truncate=True.",
            )
        kept = tensor[: self.length] if self.side == "right" else tensor[-self.length :]
        padding = tensor.new_full((self.length - len(kept), *tensor.shape[1:]), value)
        return torch.cat([kept, padding] if self.side == "right" else [padding, kept])


def _require_alike(columns: Mapping[Any, list[Any]]) -> None:
    """Refuse a record whose tokens and mask, types or positions are of several lengths, which padding would hide."""
    for key in (key for key in AS_LONG if key in columns and "input_ids" in columns):
        for tokens, others in zip(columns["input_ids"], columns[key], strict=True):
            if isinstance(tokens, Sized) and isinstance(others, Sized) and len(tokens) != len(others):
                raise InputError(
                    f"data: of a record, {key} has {len(others)} places, and input_ids {len(tokens)}: they disagree in length.",
                    source="the data, or the tokenizer's output",
                    remedy="pad and cut all parts of a record alike.",
                )


def _entry(record: Any, key: Any) -> Any:
    try:
        return record if key is None else record[key]
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"data: a record has no entry {key!r}, which the first of its batch has.") from error

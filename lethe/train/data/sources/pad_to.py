"""PadTo: a collate function that pads every record to one length, so that no record's row depends on the others' lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    the padding enters: in a mean over places, in a normalisation. Padded to one length, a record's row is a function of the record alone.

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
        for name, allowed in (("side", ("right", "left")), ("truncate", (True, False)), ("by_name", (True, False))):
            if not any(type(getattr(self, name)) is type(one) and getattr(self, name) == one for one in allowed):
                raise InputError(f"{name}: got {getattr(self, name)!r}; it needs {allowed[0]!r} or {allowed[1]!r}.")

    def __call__(self, records: Sequence[Any]) -> Tensors | dict[str, Tensor]:
        """The batch: one tensor for each entry, shape (B, length, ...) or, of entries without a length, (B,)."""
        first = records[0] if records else ()
        if not isinstance(first, Mapping) and (self.keys is not None or self.by_name):
            raise InputError(f"keys, by_name: a record is {type(first).__name__}; only mappings have names.")
        if not isinstance(first, Mapping | tuple | list):
            records, first = [(record,) for record in records], (first,)
        made: dict[Any, list[Tensor]] = {key: [] for key in self.keys or (first if isinstance(first, Mapping) else range(len(first)))}
        for place, record in enumerate(records):
            try:
                row = {key: torch.as_tensor(record[key]) for key in made}
            except (LookupError, TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"data: record {place} of a batch has not the entries {', '.join(map(repr, made))}, or one is no tensor and no list of "
                    f"numbers: {type(error).__name__}."
                ) from error
            for key in AS_LONG:
                if key in row and "input_ids" in row and row[key].shape[:1] != row["input_ids"].shape[:1]:
                    raise InputError(
                        f"data: {key} and input_ids of record {place} of a batch disagree in length.", remedy="cut them alike."
                    )
            for key, tensor in row.items():
                made[key].append(self._padded(key, tensor) if tensor.dim() else tensor)
        if not made or not records:
            raise InputError("records: got none, or without entries; a batch needs one at least.")
        stacked = {str(key): torch.stack(rows) for key, rows in made.items()}
        return stacked if self.by_name else tuple(stacked.values())

    def _padded(self, key: Any, tensor: Tensor) -> Tensor:
        if len(tensor) > self.length and not self.truncate:
            raise InputError(
                f"data: entry {key!r} of a record has {len(tensor)} places; it needs at most {self.length}.",
                remedy="choose a larger PadTo.length, by what is publicly known of the records; or truncate=True.",
            )
        kept = tensor[: self.length] if self.side == "right" else tensor[-self.length :]
        padding = tensor.new_full((self.length - len(kept), *tensor.shape[1:]), self.values.get(key, self.value))
        return torch.cat([kept, padding] if self.side == "right" else [padding, kept])

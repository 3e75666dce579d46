"""What a Trainer gives and gets beside its loop: its records, collated by its collator, and a model card with the certificate."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load, metadata_save

import lethe.report
from lethe.certificates.certificate import Certificate
from lethe.documents.strict import write_bytes
from lethe.errors import InputError
from lethe.train.core.comparison import first_line
from lethe.train.data.map_style import MapStyleSource

_NO_COLUMN = (
    "no column of the data set is an argument of the model's forward: remove_unused_columns=False, or columns that are called as the "
    "arguments are."
)
_BEGIN, _END = "<!-- lethe: begin -->", "<!-- lethe: end -->"


class Collated:
    """A data collator that says what is wrong with it; a class, so that processes can be sent it."""

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self._collator = collator

    def __call__(self, records: list[Any]) -> dict[str, Any]:
        """The batch, or what is wrong with it."""
        try:
            batch = self._collator(records)
        except InputError:
            raise
        except Exception as error:
            named = not records or isinstance(records[0], Mapping)
            raise InputError(
                f"data_collator: of {len(records)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the data collator, or records whose parts disagree in length" if named else "train_dataset, data_collator",
                remedy="pad each part of a record to one length: DataCollatorWithPadding(tokenizer)."
                if named
                else f"a record is a {type(records[0]).__name__}: make it a mapping of the model's arguments, as tokenizer(text) does.",
            ) from error
        if not isinstance(batch, Mapping):
            raise InputError(f"data_collator: made a {type(batch).__name__}; it needs a mapping of the model's arguments to tensors.")
        if all(value is None for value in batch.values()):
            raise InputError("data_collator: made an empty batch.", remedy=_NO_COLUMN)
        return dict(batch)


def source_of(trainer: Any, *, declared_apart: bool) -> MapStyleSource:
    """The records of a Trainer, collated by its collator."""
    dataset, collator, args = trainer.train_dataset, trainer.data_collator, trainer.args
    if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):  # a datasets.Dataset
        dataset = trainer._remove_unused_columns(dataset, description="training")
    else:
        collator = trainer._get_collator_with_removed_columns(collator, description="training")
    reading = {"num_workers": args.dataloader_num_workers, "multiprocessing_context": args.dataloader_multiprocessing_context}
    return MapStyleSource(dataset, collate=Collated(collator), declared_apart=declared_apart, **reading)


def add_certificate(card: Path, certificate: Certificate) -> None:
    """Write a certificate into a model card, in its metadata and in words below; one that is there from before is replaced."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.md"
        lethe.report.write(certificate, report)
        own, words = metadata_load(report) or {}, report.read_text().split("\n---\n", 1)[1].strip()
    theirs = (metadata_load(card) or {}) if card.exists() else {}
    tags = [theirs["tags"]] if isinstance(theirs.get("tags"), str) else list(theirs.get("tags") or ())
    text = re.sub(f"\n*{_BEGIN}.*?{_END}\n*", "\n", card.read_text() if card.exists() else "", flags=re.DOTALL).rstrip()
    write_bytes(card, f"{text}\n\n{_BEGIN}\n{words}\n{_END}\n".encode())
    metadata_save(card, {**theirs, "tags": list(dict.fromkeys([*tags, *own["tags"]])), "differential_privacy": own["differential_privacy"]})

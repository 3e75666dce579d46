"""Records whose parts have names: from data sets, mappings, DataLoaders and collate functions."""

from __future__ import annotations

import warnings
from collections import UserDict
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, WeightedRandomSampler

from lethe.errors import InputError, LetheWarning
from lethe.train.data import MapStyleSource, PadTo, TensorSource, as_source
from lethe.train.data.sources.fields import fields_of
from lethe.train.data.user_ids import ids_of

RECORDS = 12
TOKENS = torch.arange(RECORDS * 5).reshape(RECORDS, 5)
SCORES = torch.linspace(0, 1, RECORDS, dtype=torch.float64)


def rows(length: int | None = 5, **others: Any) -> list[dict[str, Any]]:
    """Records as lists and numbers; of lengths of their own where `length` is None."""
    sizes = [5 if length is None and place % 2 else 3 if length is None else length for place in range(RECORDS)]
    listed = [TOKENS[place, :size].tolist() for place, size in enumerate(sizes)]
    return [{"input_ids": own, "label": place % 3, **others} for place, own in enumerate(listed)]


class Given:
    """A map-style data set."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


def widened(records: list[Any]) -> dict[str, Tensor]:
    """A collate function that pads to the longest."""
    longest = max(len(record["input_ids"]) for record in records)
    padded = [record["input_ids"] + [0] * (longest - len(record["input_ids"])) for record in records]
    return {"input_ids": torch.tensor(padded), "label": torch.tensor([record["label"] for record in records])}


def same(source: Any, expected: dict[str, Tensor]) -> None:
    assert fields_of(source) == tuple(sorted(expected))
    for batch in (slice(2, 7), torch.tensor([7, 1, 1])):
        for name, tensor in zip(source.fields, source.fetch(batch), strict=True):
            assert tensor.dtype == expected[name].dtype
            assert torch.equal(tensor, expected[name][batch])


def test_mappings_of_arrays_are_sources_of_their_rows() -> None:
    expected = {"input_ids": TOKENS, "score": SCORES}
    for data in (expected, {"score": SCORES.numpy(), "input_ids": TOKENS.tolist()}, UserDict(expected)):
        source = as_source(data)
        assert isinstance(source, TensorSource)
        same(source, expected)
    assert as_source(expected, leave_out=("score",)).fields == ("input_ids",)  # pyright: ignore[reportAttributeAccessIssue]
    frozen = SCORES.numpy().copy()
    frozen.flags.writeable = False
    mapped = as_source({"input_ids": TOKENS.numpy(), "score": frozen})
    same(mapped, expected)


def test_records_are_stacked_as_torch_reads_their_numbers() -> None:
    records = [{"x": TOKENS[place], "y": SCORES[place].numpy(), "z": place / 2, "w": place % 2 == 0} for place in range(RECORDS)]
    halves = torch.arange(RECORDS) / 2
    expected = {"x": TOKENS, "y": SCORES, "z": halves, "w": torch.arange(RECORDS) % 2 == 0}
    for data in (Given(records), records, Given(list(map(UserDict, records)))):
        same(as_source(data), expected)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, ["input_ids", "label"]])
@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
def test_a_data_set_of_hugging_face_is_one(kind: str | None, columns: list[str] | None) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows(who="somebody"))
    expected = {"input_ids": TOKENS, "label": torch.arange(RECORDS) % 3}
    if kind is not None and columns is not None:
        same(as_source(data.with_format(kind, columns=columns)), expected)
        assert ids_of("who", data.with_format(kind, columns=columns)) == ["somebody"] * RECORDS
        assert ids_of("label", as_source(data.with_format(kind, columns=columns))) == [place % 3 for place in range(RECORDS)]
        return
    with pytest.raises(InputError, match=r"field who cannot become a tensor: its first entry is (str|str_).*"):
        as_source(data.with_format(kind))
    same(as_source(data.remove_columns(["who"]).with_format(kind)), expected)
    same(as_source(data.with_format(kind), leave_out=("who",)), expected)
    with pytest.raises(InputError, match=r"of a DatasetDict, or another mapping of data sets, give one: data\['train'\]"):
        as_source(datasets.DatasetDict({"train": data}))


def test_uneven_records_are_refused_by_the_name_of_their_field_and_padded_by_pad_to() -> None:
    source = as_source(rows(None))
    with pytest.raises(
        InputError, match=r"(?s)field input_ids is torch.int64 of shape \(5,\) in record 1 .*PadTo\(length=..., by_name=True\)"
    ):
        source.fetch(slice(0, 2))
    same(MapStyleSource(rows(), collate=PadTo(length=5, by_name=True)), {"input_ids": TOKENS, "label": torch.arange(RECORDS) % 3})
    with pytest.raises(InputError, match="only mappings have names"):
        PadTo(length=5, by_name=True)([(1, 2)])
    with pytest.raises(InputError, match="by_name: got 1"):
        PadTo(length=5, by_name=1)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"x": 1.0}, {"y": 1.0}], "record 1 of a batch is of y; the first one is of x"),
        ([{"x": 1.0}, 2.0], "record 1 of a batch is of float"),
        ([{"x": 1.0}, {"x": 2}], "field x is torch.int64 .* in record 1 of a batch, and torch.float32"),
        ([{"input_ids": [1, 2], "attention_mask": [1]}] * 2, "attention_mask .* disagree in length"),
    ],
)
def test_records_that_are_not_alike_are_refused(records: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MapStyleSource(Given(records)).fetch(slice(0, 2))


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (lambda records: {"x": len(records)}, "collate: x is int"),
        (lambda records: {"x": torch.ones(3)}, "x is a tensor of shape"),
        (lambda records: {}, "empty batch"),
        (lambda records: {"x": torch.ones(len(records)), f"{len(records)}": torch.ones(len(records))}, "made a batch of 2, x; the first"),
        (lambda records: {"x": torch.ones(1)} if len(records) == 1 else torch.ones(2), "made a Tensor; the first batch was a mapping"),
        (lambda records: {"x": torch.tensor([record["input_ids"] for record in records])}, "of 2 records it makes no batch: ValueError"),
    ],
)
def test_collate_functions_that_make_no_batch_are_refused(collate: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MapStyleSource(rows(None), collate=collate).fetch(slice(0, 2))


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({}, "ignored are batch_size=1:"),
        ({"batch_size": 4, "shuffle": True, "drop_last": True}, "ignored are batch_size=4, shuffle=True, drop_last:"),
        ({"sampler": WeightedRandomSampler([1.0] * RECORDS, RECORDS)}, r"sampler \(WeightedRandomSampler\):"),
        ({"sampler": DistributedSampler(rows(), num_replicas=2, rank=0)}, r"sampler \(DistributedSampler\):"),
        ({"generator": torch.Generator(), "worker_init_fn": print}, "generator, worker_init_fn:"),
    ],
)
def test_a_loader_says_its_records_and_what_of_it_is_ignored_is_said_once(options: dict[str, Any], ignored: str) -> None:
    sampler = options.get("sampler")
    data = sampler.dataset if isinstance(sampler, DistributedSampler) else rows()
    with pytest.warns(LetheWarning, match=ignored) as said:
        source = as_source(DataLoader(data, collate_fn=widened, **options))
    assert len(said) == 1
    same(source, {"input_ids": TOKENS, "label": torch.arange(RECORDS) % 3})


def test_a_loader_of_plain_records_is_what_its_data_set_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LetheWarning)
        assert isinstance(as_source(DataLoader(TensorDataset(TOKENS, SCORES))), TensorSource)
        same(as_source(DataLoader(Given(rows(who="x"))), leave_out=("who",)), {"input_ids": TOKENS, "label": torch.arange(RECORDS) % 3})
        assert as_source(DataLoader(Given(rows()), num_workers=1)).reading["num_workers"] == 1  # pyright: ignore[reportAttributeAccessIssue]

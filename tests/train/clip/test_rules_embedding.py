"""Tables that records look rows up in."""

from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_oracle import agree, check, fast_parts, folded, losses_of, true_gradients
from torch import Tensor, nn

F64 = torch.float64


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3)])
def test_embedding(shape: tuple[int, ...], sparse: bool, padding: int | None) -> None:
    layer = nn.Embedding(5, 4, padding_idx=padding, sparse=sparse, dtype=F64)
    check(layer, layer, torch.randint(5, (3, *shape)))
    check(layer, lambda batch: layer(input=batch.int()), torch.randint(5, (3, *shape)))


def test_embedding_in_float32() -> None:
    layer = nn.Embedding(5, 4)
    check(layer, layer, torch.randint(5, (3, 6)), rel=1e-5)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_two_rows_a_record(layout: str) -> None:
    folded(nn.Embedding(5, 4, dtype=F64), torch.randint(5, (3, 2, 4)), layout)
    folded(nn.EmbeddingBag(5, 4, dtype=F64), torch.randint(5, (3, 2, 4)), layout)


def test_positions_that_are_the_same_for_all_records() -> None:
    layer = nn.ModuleList([nn.Embedding(7, 4, dtype=F64), nn.Embedding(4, 4, dtype=F64)])
    layer.append(nn.Linear(4, 2, dtype=F64))

    def outputs(batch: Tensor) -> Tensor:
        places = torch.arange(batch.shape[1])
        return layer[2]((layer[0](batch) + layer[1](places)).tanh())

    check(layer, outputs, torch.randint(7, (3, 4)))
    check(layer, outputs, torch.randint(7, (3, 3)), layout="shared")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("factors", [False, True])
def test_bags_of_one_size(mode: str, padding: int | None, factors: bool) -> None:
    if factors and mode != "sum":
        return
    layer = nn.EmbeddingBag(5, 4, mode=mode, padding_idx=padding, sparse=mode != "max", dtype=F64)
    batch: dict[str, Tensor] = {"tokens": torch.randint(5, (3, 6))}
    batch["tokens"][1] = 1  # nothing but padding
    if factors:
        batch["factors"] = torch.randn(3, 6, dtype=F64)
    check(layer, lambda batch: layer(batch["tokens"], per_sample_weights=batch.get("factors")), batch)


@given(
    mode=st.sampled_from(["sum", "mean", "max"]),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    padding=st.sampled_from([None, 0, 3]),
    last=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=examples(40))
def test_bags_of_any_size(mode: str, lengths: list[int], padding: int | None, last: bool, weighted: bool) -> None:
    torch.manual_seed(0)
    layer = nn.EmbeddingBag(5, 4, mode=mode, padding_idx=padding, include_last_offset=last, dtype=F64)
    tokens = [torch.randint(5, (length,)) for length in lengths]
    factors = [torch.randn(length, dtype=F64) if weighted and mode == "sum" else None for length in lengths]
    offsets = torch.tensor([0, *lengths]).cumsum(0)

    def bags(records: range) -> Tensor:
        places = offsets[records.start : records.stop + last] - offsets[records.start]
        some: Any = None if factors[0] is None else torch.cat([factors[record] for record in records])  # pyright: ignore
        return losses_of(layer(torch.cat([tokens[record] for record in records]), places, some))

    parts = fast_parts(layer, lambda: bags(range(len(lengths))), len(lengths))
    agree(parts, true_gradients(layer, lambda record: bags(range(record, record + 1)), len(lengths)))


def test_the_first_of_equal_rows_is_the_largest() -> None:
    layer = nn.EmbeddingBag(4, 3, mode="max", dtype=F64)
    with torch.no_grad():
        layer.weight[1] = layer.weight[2]
    check(layer, layer, torch.tensor([[2, 1, 1], [1, 2, 0], [1, 1, 1]]))


def test_a_bag_shares_its_table() -> None:
    bag = nn.EmbeddingBag(5, 4, dtype=F64)
    table = nn.Embedding(5, 4, dtype=F64)
    table.weight = bag.weight
    model = nn.ModuleList([bag, table])
    check(model, lambda batch: [bag(batch), table(batch)], torch.randint(5, (3, 6)))

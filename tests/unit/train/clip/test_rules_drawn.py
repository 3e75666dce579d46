"""Convolutions, attention, recurrent layers and bags with whatever arguments they may have."""

from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import F64, agree, check, fast_parts, losses_of, true_gradients
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map

# torch says once per process that it copies the input then, whichever test comes first.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
SPACES = ((9,), (7, 6), (5, 4, 4))
HEADS, SIZE = 2, 4
KINDS = (nn.LSTM, nn.GRU, nn.RNN)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A layer, and the shape of a record."""
    dimensions, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    options: dict[str, Any] = {
        "in_channels": groups * draw(st.integers(1, 3)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": draw(st.integers(1, 3 if dimensions < 3 else 2)),
        "stride": draw(st.integers(1, 2)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    if draw(st.booleans()):
        options["padding"] = draw(st.integers(0, 1))
        options["output_padding"] = draw(st.integers(0, max(options["stride"], options["dilation"]) - 1))
        kind: Any = TRANSPOSED[dimensions - 1]
    else:
        options["padding"] = draw(st.sampled_from([0, 1, "valid"] + ["same"] * (options["stride"] == 1)))
        options["padding_mode"] = draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
        kind = LAYERS[dimensions - 1]
    torch.manual_seed(draw(st.integers(0, 99)))
    return kind(**options, dtype=F64), (options["in_channels"], *SPACES[dimensions - 1])


@pytest.mark.parametrize("memory", [2**23, 0])
@given(case=convolutions())
@settings(max_examples=examples(60))
def test_convolution(memory: int, case: tuple[nn.Module, tuple[int, ...]]) -> None:
    layer, shape = case
    check(layer, layer, torch.randn(3, *shape, dtype=F64), memory=memory)


@st.composite
def attentions(draw: st.DrawFn) -> nn.MultiheadAttention:
    options = {name: draw(st.booleans()) for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first")}
    width = draw(st.sampled_from([{}, {"kdim": 3}, {"kdim": 3, "vdim": 5}, {"vdim": 5}]))
    torch.manual_seed(draw(st.integers(0, 99)))
    layer = nn.MultiheadAttention(SIZE, HEADS, dtype=F64, **options, **width)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return layer


def attended(layer: nn.MultiheadAttention, batch: dict[str, Tensor], **options: Any) -> list[Tensor]:
    """Outputs with records first, of a batch with records first."""
    query = batch["query"]
    key, value = batch.get("key", query), batch.get("value", batch.get("key", query))
    given = {id(tensor): tensor if layer.batch_first else tensor.transpose(0, 1) for tensor in (query, key, value)}
    if "heads" in batch:
        options["attn_mask"] = batch["heads"].flatten(0, 1)
    output, weights = layer(*(given[id(tensor)] for tensor in (query, key, value)), key_padding_mask=batch.get("padding"), **options)
    output = output if layer.batch_first else output.transpose(0, 1)
    return [output] if weights is None else [output, weights]


@given(
    layer=attentions(),
    inputs=st.sampled_from(["one", "two", "three"]),
    steps=st.sampled_from([3, 4, 6]),  # also as many as records, or twice: where the records are is known, whatever the sizes
    layout=st.sampled_from(["blocks", "second"]),
    mask=st.sampled_from([None, "causal", "hint", "floats", "records"]),
    padding=st.booleans(),
    weights=st.booleans(),
    averaged=st.booleans(),
)
@settings(max_examples=examples(60))
def test_attention(
    layer: nn.MultiheadAttention, inputs: str, steps: int, layout: str, mask: str | None, padding: bool, weights: bool, averaged: bool
) -> None:
    batch: dict[str, Tensor] = {"query": torch.randn(3, steps, SIZE, dtype=F64)}
    sources = steps
    if inputs != "one" or not layer._qkv_same_embed_dim:
        sources = steps if mask in ("causal", "hint") else 5
        batch["key"] = torch.randn(3, sources, layer.kdim, dtype=F64)
        if inputs == "three" or layer.kdim != layer.vdim:
            batch["value"] = torch.randn(3, sources, layer.vdim, dtype=F64)
    options: dict[str, Any] = {"need_weights": weights, "average_attn_weights": averaged}
    if mask in ("causal", "hint"):
        options |= {"attn_mask": torch.ones(steps, steps, dtype=torch.bool).triu(1), "is_causal": mask == "hint"}
    elif mask == "floats":
        options["attn_mask"] = torch.randn(steps, sources, dtype=F64)
    elif mask == "records":
        batch["heads"] = torch.randn(3, HEADS, steps, sources, dtype=F64)
    if padding:  # torch wants both masks of one type
        hidden = torch.arange(sources) >= torch.tensor([[2], [sources], [1]])
        batch["padding"] = hidden if mask in ("causal", "hint") else -3.0 * hidden.double()
    check(layer, lambda batch: attended(layer, batch, **options), batch, layout=layout)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_dropout_draws_what_the_layer_draws(weights: bool, first: bool) -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, dropout=0.4, batch_first=first, dtype=F64)
    batch = {"query": torch.randn(3, 4, SIZE, dtype=F64)}

    def losses() -> Tensor:
        torch.manual_seed(3)
        return losses_of(attended(layer, batch, need_weights=weights))

    agree(fast_parts(layer, losses, 3), true_gradients(layer, lambda record: losses()[record], 3))  # of one forward pass of torch's own


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_transformer_layers(first: bool, training: bool) -> None:
    kinds = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    model = nn.ModuleList([kind(SIZE, HEADS, 6, dropout=0.0, batch_first=first, dtype=F64) for kind in kinds]).train(training)

    def outputs(batch: Tensor) -> Tensor:
        given = batch if first else batch.transpose(0, 1)
        found = model[1](given[:, :2] if first else given[:2], model[0](given))
        return found if first else found.transpose(0, 1)

    check(model, outputs, torch.randn(3, 4, SIZE, dtype=F64))


@st.composite
def recurrent(draw: st.DrawFn) -> nn.RNNBase:
    kind = draw(st.sampled_from(KINDS))
    options: dict[str, Any] = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    options["num_layers"] = draw(st.integers(1, 2))
    if kind is nn.LSTM:
        options["proj_size"] = draw(st.sampled_from([0, 2]))
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    torch.manual_seed(draw(st.integers(0, 99)))
    return kind(3, 4, dtype=F64, **options)


def starts(layer: nn.RNNBase, records: int) -> Any:
    """States at the start, records first."""
    places = layer.num_layers * (2 if layer.bidirectional else 1)
    state = torch.randn(records, places, layer.proj_size or layer.hidden_size, dtype=F64)
    return (state, torch.randn(records, places, layer.hidden_size, dtype=F64)) if isinstance(layer, nn.LSTM) else state


def turned(state: Any) -> Any:
    return tree_map(lambda tensor: tensor.transpose(0, 1), state)


def outputs_of(layer: nn.RNNBase, given: Any, start: Any) -> list[Tensor]:
    """The outputs and last states, records first; of packed records padded."""
    output, state = layer(given) if start is None else layer(given, turned(start))
    if isinstance(output, PackedSequence):
        output = pad_packed_sequence(output, batch_first=True)[0]
    elif not layer.batch_first:
        output = output.transpose(0, 1)
    return [output, *(turned(state) if isinstance(state, tuple) else [turned(state)])]


@given(layer=recurrent(), start=st.booleans(), steps=st.sampled_from([1, 3, 4]), layout=st.sampled_from(["blocks", "second"]))
@settings(max_examples=examples(40))
def test_recurrent(layer: nn.RNNBase, start: bool, steps: int, layout: str) -> None:
    given = torch.randn(3, steps, 3, dtype=F64)

    def outputs(batch: tuple[Tensor, Any]) -> list[Tensor]:
        return outputs_of(layer, batch[0] if layer.batch_first else batch[0].transpose(0, 1), batch[1] if start else None)

    check(layer, outputs, (given, starts(layer, 3)), layout=layout)


@given(layer=recurrent(), start=st.booleans(), lengths=st.lists(st.integers(1, 4), min_size=2, max_size=4), ordered=st.booleans())
@settings(max_examples=examples(40))
def test_packed_records(layer: nn.RNNBase, start: bool, lengths: list[int], ordered: bool) -> None:
    lengths = sorted(lengths, reverse=True) if ordered else lengths
    given, first = torch.randn(len(lengths), max(lengths), 3, dtype=F64), starts(layer, len(lengths))

    def losses(records: slice) -> Tensor:
        packed = pack_padded_sequence(given[records], torch.tensor(lengths[records]), batch_first=True, enforce_sorted=ordered)
        found = outputs_of(layer, packed, tree_map(lambda tensor: tensor[records], first) if start else None)
        found[0] = nn.functional.pad(found[0], (0, 0, 0, max(lengths) - found[0].shape[1]))
        return losses_of(found)

    parts = fast_parts(layer, lambda: losses(slice(None)), len(lengths))
    agree(parts, true_gradients(layer, lambda record: losses(slice(record, record + 1)), len(lengths)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_what_torch_gives(kind: type[nn.RNNBase]) -> None:
    """Outputs, packings and gradients in the input; the draws of dropout between layers too."""
    layer = kind(3, 4, num_layers=3, dropout=0.4, bidirectional=True, dtype=F64)
    given = torch.randn(5, 3, 3, dtype=F64, requires_grad=True)
    found: list[list[Any]] = []

    def losses() -> Tensor:
        torch.manual_seed(1)
        output, state = layer(given)
        packed, last = layer.eval()(pack_padded_sequence(given, torch.tensor([2, 5, 3]), enforce_sorted=False))
        layer.train()
        found.append([output, state, *packed, last])
        rows = pad_packed_sequence(packed, batch_first=True)[0]
        return losses_of([output.transpose(0, 1), turned(state[0] if isinstance(state, tuple) else state), rows])

    fast_parts(layer, losses, 3)
    found[-1].append(given.grad)
    given.grad = None
    losses().sum().backward()
    found[-1].append(given.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


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

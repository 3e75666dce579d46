"""nn.MultiheadAttention."""

from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_oracle import agree, check, fast_parts, losses_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

F64 = torch.float64

HEADS, SIZE = 2, 4


@st.composite
def layers(draw: st.DrawFn) -> nn.MultiheadAttention:
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
    layer=layers(),
    inputs=st.sampled_from(["one", "two", "three"]),
    mask=st.sampled_from([None, "causal", "hint", "floats", "records"]),
    padding=st.booleans(),
    weights=st.booleans(),
    averaged=st.booleans(),
)
@settings(max_examples=examples(40))
def test_attention(layer: nn.MultiheadAttention, inputs: str, mask: str | None, padding: bool, weights: bool, averaged: bool) -> None:
    batch: dict[str, Tensor] = {"query": torch.randn(3, 4, SIZE, dtype=F64)}
    sources = 4
    if inputs != "one" or not layer._qkv_same_embed_dim:
        sources = 4 if mask in ("causal", "hint") else 5
        batch["key"] = torch.randn(3, sources, layer.kdim, dtype=F64)
        if inputs == "three" or layer.kdim != layer.vdim:
            batch["value"] = torch.randn(3, sources, layer.vdim, dtype=F64)
    options: dict[str, Any] = {"need_weights": weights, "average_attn_weights": averaged}
    if mask in ("causal", "hint"):
        options |= {"attn_mask": torch.ones(4, 4, dtype=torch.bool).triu(1), "is_causal": mask == "hint"}
    elif mask == "floats":
        options["attn_mask"] = torch.randn(4, sources, dtype=F64)
    elif mask == "records":
        batch["heads"] = torch.randn(3, HEADS, 4, sources, dtype=F64)
    if padding:  # torch wants both masks of one type
        hidden = torch.arange(sources) >= torch.tensor([[2], [sources], [1]])
        batch["padding"] = hidden if mask in ("causal", "hint") else -3.0 * hidden.double()
    check(layer, lambda batch: attended(layer, batch, **options), batch)


def test_attention_in_float32() -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
    check(layer, lambda batch: layer(batch, batch, batch)[0], torch.randn(3, 5, SIZE), rel=1e-5)


@pytest.mark.parametrize("steps", [3, 6, 9])
@pytest.mark.parametrize("layout", ["blocks", "second"])
@pytest.mark.parametrize("first", [True, False])
def test_as_many_steps_as_records(steps: int, layout: str, first: bool) -> None:
    """Where the records are is known, whatever the sizes."""
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=first, dtype=F64)
    check(layer, lambda batch: attended(layer, {"query": batch}), torch.randn(3, steps, SIZE, dtype=F64), layout=layout)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_dropout_draws_what_the_layer_draws(weights: bool, first: bool) -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, dropout=0.4, batch_first=first, dtype=F64)
    batch = {"query": torch.randn(3, 4, SIZE, dtype=F64)}

    def losses() -> Tensor:
        torch.manual_seed(3)
        return losses_of(attended(layer, batch, need_weights=weights))

    truth: dict[str, list[Tensor]] = {name: [] for name, _ in layer.named_parameters()}
    for record in range(3):  # of one forward pass of torch's own
        layer.zero_grad()
        losses()[record].backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            truth[name].append(parameter.grad.clone())
    agree(fast_parts(layer, losses, 3), {name: torch.stack(rows) for name, rows in truth.items()})


@pytest.mark.parametrize("trained", ["in_proj_weight", "in_proj_bias", "out_proj.weight", "bias_k"])
def test_frozen_parameters_have_no_part(trained: str) -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, add_bias_kv=True, batch_first=True, dtype=F64)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name == trained)
    check(layer, lambda batch: layer(batch, batch, batch)[0], torch.randn(3, 4, SIZE, dtype=F64))


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_two_rows_a_record(layout: str) -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, add_bias_kv=True, batch_first=True, dtype=F64)

    def outputs(batch: Tensor) -> Tensor:
        rows = batch.flatten(0, 1) if layout == "interleaved" else batch.transpose(0, 1).flatten(0, 1)
        attended = layer(rows, rows, rows)[0]
        if layout == "interleaved":
            return attended.unflatten(0, (len(batch), 2)).flatten(1)
        return attended.unflatten(0, (2, len(batch))).transpose(0, 1).flatten(1)

    check(layer, outputs, torch.randn(3, 2, 4, SIZE, dtype=F64), layout=layout)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_transformer_layers(first: bool, training: bool) -> None:
    encoder = nn.TransformerEncoderLayer(SIZE, HEADS, 6, dropout=0.0, batch_first=first, dtype=F64).train(training)
    decoder = nn.TransformerDecoderLayer(SIZE, HEADS, 6, dropout=0.0, batch_first=first, dtype=F64).train(training)
    model = nn.ModuleList([encoder, decoder])

    def outputs(batch: Tensor) -> Tensor:
        given = batch if first else batch.transpose(0, 1)
        found = decoder(given[:, :2] if first else given[:2], encoder(given))
        return found if first else found.transpose(0, 1)

    check(model, outputs, torch.randn(3, 4, SIZE, dtype=F64))


def test_a_parametrised_projection_is_followed() -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=F64)
    nn.utils.parametrizations.weight_norm(layer.out_proj)
    check(layer, lambda batch: layer(batch, batch, batch)[0], torch.randn(3, 4, SIZE, dtype=F64))


def test_under_checkpointing() -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=F64)
    model = nn.Sequential(nn.Linear(SIZE, SIZE, dtype=F64), layer)
    for reentrant in (True, False):

        def outputs(batch: Tensor, reentrant: bool = reentrant) -> Tensor:
            hidden = model[0](batch)
            return checkpoint(lambda given: layer(given, given, given)[0], hidden, use_reentrant=reentrant)

        check(model, outputs, torch.randn(3, 4, SIZE, dtype=F64))


def test_one_record_without_its_dimension_is_not_followed() -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS)
    with pytest.raises(NotImplementedError, match="dimension of records"):
        fast_parts(layer, lambda: layer(*[torch.randn(3, SIZE)] * 3)[0].sum(1), 3)

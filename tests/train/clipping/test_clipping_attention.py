from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_oracle import Call, check, names_of
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.rules.attention.layers import AttentionGradients
from lethe.train.clipping.rules.replay import RandomUse
from lethe.train.clipping.rules.rule import Use


def attention(**options: Any) -> nn.MultiheadAttention:
    layer = nn.MultiheadAttention(**{"embed_dim": 4, "num_heads": 2, "dtype": torch.float64} | options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.7)
    return layer


def call_of(
    layer: nn.MultiheadAttention,
    batch: int,
    queries: int,
    keys: int,
    *,
    shared: str = "none",
    masks: str = "none",
    weights: str = "needed",
    averaged: bool = True,
    keywords: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Call:
    """A call with random inputs; `shared` says which of query, key and value are one tensor."""
    heads = layer.num_heads
    keys = queries if shared == "all" else keys
    query = torch.randn(batch, queries, layer.embed_dim, dtype=dtype)
    key = query if shared == "all" else torch.randn(batch, keys, layer.kdim or layer.embed_dim, dtype=dtype)
    value = key if shared in ("all", "key") else torch.randn(batch, keys, layer.vdim or layer.embed_dim, dtype=dtype)
    padding = attn = None
    causal = False
    if "padding" in masks:
        padding = torch.rand(batch, keys) < 0.4
        padding[:, 0] = False  # a query that may see no key at all has no gradient, only NaN
    if "float" in masks:
        padding = None if padding is None else torch.zeros(batch, keys, dtype=dtype).masked_fill(padding, -torch.inf)
        attn = torch.randn(queries, keys, dtype=dtype)
    if "heads" in masks:
        attn = torch.rand(batch * heads, queries, keys) < 0.4
        attn[:, :, 0] = False
    if "causal" in masks:
        attn, causal = torch.ones(queries, keys, dtype=torch.bool).triu(1), True
    extra = (layer.bias_k is not None) + int(layer.add_zero_attn)
    out_gradient = torch.randn(batch, queries, layer.embed_dim, dtype=dtype)
    if averaged:
        weights_gradient = torch.randn(batch, queries, keys + extra, dtype=dtype)
    else:
        weights_gradient = torch.randn(batch, heads, queries, keys + extra, dtype=dtype)

    def laid(tensor: Tensor) -> Tensor:
        return tensor if layer.batch_first else tensor.transpose(0, 1)

    def alone(module: nn.Module, i: int) -> list[Tensor | None]:
        own = attn if attn is None or attn.dim() == 2 else attn[i * heads : (i + 1) * heads]
        inputs = [laid(tensor[i : i + 1]) for tensor in (query, key, value)]
        output, seen = module(
            *inputs,
            key_padding_mask=None if padding is None else padding[i : i + 1],
            need_weights=weights != "off",
            attn_mask=own,
            average_attn_weights=averaged,
            is_causal=causal,
        )
        return [laid(output), seen]

    def cotangents(i: int) -> list[Tensor | None]:
        out = None if weights == "only" else out_gradient[i : i + 1]
        return [out, weights_gradient[i : i + 1] if weights in ("used", "only") else None]

    laid_query = laid(query)
    laid_key = laid_query if shared == "all" else laid(key)
    laid_value = laid_key if shared in ("all", "key") else laid(value)
    named = {"key_padding_mask": padding, "need_weights": weights != "off", "attn_mask": attn, "average_attn_weights": averaged}
    named |= {"is_causal": causal}
    inputs = {"query": laid_query, "key": laid_key, "value": laid_value}
    return Call(
        arguments=() if keywords else tuple(inputs.values()),
        keywords=named | (inputs if keywords else {}),
        alone=alone,
        cotangents=cotangents,
        gradients=(None if weights == "only" else laid(out_gradient), weights_gradient if weights in ("used", "only") else None),
    )


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(data=st.data(), batch=st.integers(0, 3), seed=st.integers(0, 99))
def test_every_option_agrees_with_one_record_at_a_time(data: st.DataObject, batch: int, seed: int) -> None:
    torch.manual_seed(seed)
    dims = data.draw(st.sampled_from([{}, {"kdim": 3}, {"kdim": 5, "vdim": 3}]))
    layer = attention(
        **dims,
        bias=data.draw(st.booleans()),
        add_bias_kv=data.draw(st.booleans()),
        add_zero_attn=data.draw(st.booleans()),
        batch_first=data.draw(st.booleans()),
        num_heads=data.draw(st.sampled_from([1, 2])),
    )
    calls = [
        call_of(
            layer,
            batch,
            data.draw(st.integers(1, 4)),
            data.draw(st.integers(1, 4)),
            shared="none" if dims else data.draw(st.sampled_from(["none", "key", "all"])),
            masks=data.draw(st.sampled_from(["none", "padding", "float", "padding float", "heads", "causal", "padding causal"])),
            weights=data.draw(st.sampled_from(["off", "needed", "used", "only"])),
            averaged=data.draw(st.booleans()),
            keywords=data.draw(st.booleans()),
        )
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    check(AttentionGradients, layer, calls, batch)


@pytest.mark.parametrize("shared", ["none", "key", "all"])
def test_float32(shared: str) -> None:
    torch.manual_seed(0)
    layer = attention(embed_dim=16, dtype=torch.float32)
    calls = [call_of(layer, 4, 7, 5, shared=shared, dtype=torch.float32) for _ in range(2)]
    check(AttentionGradients, layer, calls, 4, rel=1e-5)


def test_half_precision_inputs_are_measured_in_float32() -> None:
    torch.manual_seed(0)
    layer = attention(embed_dim=16, dtype=torch.bfloat16)
    # 2^-8 a rounding of the oracle, and a handful of them in a row
    check(AttentionGradients, layer, [call_of(layer, 4, 7, 5, shared="all", dtype=torch.bfloat16)], 4, rel=6e-2)


@pytest.mark.parametrize("names", [{"in_proj_weight"}, {"out_proj.bias", "bias_k"}, {"out_proj.weight", "in_proj_bias", "bias_v"}])
def test_some_parameters_frozen(names: set[str]) -> None:
    torch.manual_seed(0)
    layer = attention(add_bias_kv=True)
    check(AttentionGradients, layer, [call_of(layer, 3, 2, 4)], 3, names=frozenset(names))


def test_a_record_that_is_not_finite_harms_no_other() -> None:
    torch.manual_seed(0)
    layer = attention(batch_first=True)
    given, gradient = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 4, 4, dtype=torch.float64)
    clean = AttentionGradients(layer, [Use((given,) * 3, gradient)], names_of(layer))
    given = given.clone()
    given[1, 2, 0] = torch.nan
    told = AttentionGradients(layer, [Use((given,) * 3, gradient)], names_of(layer))
    assert told.squared_norms()[1].isnan()
    torch.testing.assert_close(told.squared_norms()[[0, 2]], clean.squared_norms()[[0, 2]])
    weights = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    for name, total in told.weighted_sums(weights).items():
        torch.testing.assert_close(total, clean.weighted_sums(weights)[name])


@pytest.mark.parametrize("needed", [True, False])
def test_dropout_is_replayed_from_the_kept_state(needed: bool) -> None:
    torch.manual_seed(0)
    layer = attention(dropout=0.5, batch_first=True)
    given, gradient = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 4, 4, dtype=torch.float64)
    state = torch.get_rng_state()
    output, _ = layer(given, given, given, need_weights=needed)
    (output * gradient).sum().backward()
    after = torch.get_rng_state()
    use = RandomUse((given,) * 3, gradient, {"need_weights": needed}, random_state=state)
    sums = AttentionGradients(layer, [use], names_of(layer)).weighted_sums(torch.ones(3, dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), after)  # replaying leaves the generator alone
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(sums[name], parameter.grad, rtol=1e-10, atol=1e-12)


def test_dropout_that_cannot_be_replayed_is_refused() -> None:
    layer, given = attention(dropout=0.5), torch.zeros(2, 3, 4, dtype=torch.float64)
    with pytest.raises(InputError, match="was not kept"):
        AttentionGradients(layer, [Use((given,) * 3, given)], names_of(layer))
    use = RandomUse((given,) * 3, given.bfloat16(), random_state=torch.get_rng_state())
    with pytest.raises(InputError, match="one full precision"):
        AttentionGradients(layer, [use], names_of(layer))
    assert AttentionGradients(layer.eval(), [Use((given,) * 3, given)], names_of(layer)).squared_norms().shape == (3,)


def test_inputs_without_records_are_refused() -> None:
    with pytest.raises(InputError, match="2 dimensions"):
        AttentionGradients(attention(), [Use((torch.zeros(3, 4),) * 3, torch.zeros(3, 4))], frozenset({"bias_k"}))

from collections.abc import Callable

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_oracle import Call, check
from torch import nn

from lethe.errors import InputError
from lethe.train.clipping.rules.normalisation import GroupNormGradients, InstanceNormGradients, LayerNormGradients, RMSNormGradients
from lethe.train.clipping.rules.rule import Rule, Use

BATCHES = st.integers(0, 4)
INNER = st.lists(st.lists(st.integers(1, 3), max_size=2), min_size=1, max_size=2)
BOTH = frozenset({"weight", "bias"})


def scrambled(layer: nn.Module) -> nn.Module:
    """Scales of 1 and shifts of 0 would hide a mistake."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def call_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Call:
    given, gradient = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    return Call(
        arguments=(given,),
        alone=lambda module, i: [module(given[i : i + 1])],
        cotangents=lambda i: [gradient[i : i + 1]],
        gradients=(gradient,),
    )


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(batch=BATCHES, inner=INNER, shape=st.lists(st.integers(1, 4), min_size=1, max_size=2), bias=st.booleans(), seed=st.integers(0, 99))
def test_layer_norm(batch: int, inner: list[list[int]], shape: list[int], bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    layer = scrambled(nn.LayerNorm(shape, eps=1e-3, bias=bias, dtype=torch.float64))
    check(LayerNormGradients, layer, [call_of((batch, *middle, *shape)) for middle in inner], batch)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    batch=BATCHES,
    inner=INNER,
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    eps=st.sampled_from([None, 1e-2]),
    seed=st.integers(0, 99),
)
def test_rms_norm(batch: int, inner: list[list[int]], shape: list[int], eps: float | None, seed: int) -> None:
    torch.manual_seed(seed)
    layer = scrambled(nn.RMSNorm(shape, eps=eps, dtype=torch.float64))
    check(RMSNormGradients, layer, [call_of((batch, *middle, *shape)) for middle in inner], batch)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(batch=BATCHES, inner=INNER, groups=st.integers(1, 3), size=st.integers(2, 3), seed=st.integers(0, 99))
def test_group_norm(batch: int, inner: list[list[int]], groups: int, size: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer = scrambled(nn.GroupNorm(groups, groups * size, dtype=torch.float64))
    check(GroupNormGradients, layer, [call_of((batch, groups * size, *positions)) for positions in inner], batch)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(batch=BATCHES, dimensions=st.integers(1, 3), channels=st.integers(1, 3), seed=st.integers(0, 99))
def test_instance_norm(batch: int, dimensions: int, channels: int, seed: int) -> None:
    torch.manual_seed(seed)
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dimensions - 1]
    layer = scrambled(kind(channels, affine=True, dtype=torch.float64))
    check(InstanceNormGradients, layer, [call_of((batch, channels, *[3, 2, 2][:dimensions])) for _ in range(2)], batch)


KINDS: list[tuple[Rule, Callable[[torch.dtype], nn.Module], tuple[int, ...]]] = [
    (LayerNormGradients, lambda dtype: nn.LayerNorm(6, dtype=dtype), (3, 5, 6)),
    (RMSNormGradients, lambda dtype: nn.RMSNorm(6, dtype=dtype), (3, 5, 6)),
    (GroupNormGradients, lambda dtype: nn.GroupNorm(2, 6, dtype=dtype), (3, 6, 5)),
    (InstanceNormGradients, lambda dtype: nn.InstanceNorm1d(6, affine=True, dtype=dtype), (3, 6, 5)),
]


@pytest.mark.parametrize(("rule", "make", "shape"), KINDS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)  # bfloat16: 2^-8 a rounding, of the oracle
def test_lower_precision(
    rule: Rule, make: Callable[[torch.dtype], nn.Module], shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    check(rule, scrambled(make(dtype)), [call_of(shape, dtype), call_of(shape, dtype)], 3, rel=tolerance)


@pytest.mark.parametrize(
    ("rule", "make", "shape", "name"), [(*kind, name) for kind in KINDS for name, _ in kind[1](torch.float64).named_parameters()]
)
def test_one_parameter_trained(rule: Rule, make: Callable[[torch.dtype], nn.Module], shape: tuple[int, ...], name: str) -> None:
    torch.manual_seed(0)
    check(rule, make(torch.float64), [call_of(shape)], 3, names=frozenset({name}))


def test_half_precision_without_an_eps_takes_that_of_float32() -> None:
    # Rows of size 1e-2: the eps of bfloat16, 8e-3, would shrink them tenfold.
    layer, given = nn.RMSNorm(8, dtype=torch.bfloat16), (torch.randn(2, 8) * 1e-2).bfloat16()
    told = RMSNormGradients(layer, [Use((given,), torch.ones(2, 8, dtype=torch.bfloat16))], frozenset({"weight"}))
    torch.testing.assert_close(told.per_record("weight"), layer(given).detach().float(), rtol=2**-7, atol=0)


def test_running_statistics_are_refused() -> None:
    layer = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    with pytest.raises(InputError, match="running mean"):
        InstanceNormGradients(layer, [Use((torch.zeros(2, 3, 4),), torch.zeros(2, 3, 4))], BOTH)


@pytest.mark.parametrize(
    ("rule", "layer", "shape"),
    [
        (LayerNormGradients, nn.LayerNorm((2, 3)), (2, 3)),
        (GroupNormGradients, nn.GroupNorm(1, 3), (3,)),
        (InstanceNormGradients, nn.InstanceNorm1d(3, affine=True), (3, 4)),
        (InstanceNormGradients, nn.InstanceNorm2d(3, affine=True), (3, 4, 4)),
    ],
)
def test_inputs_without_records_are_refused(rule: Rule, layer: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="records first"):
        rule(layer, [Use((torch.zeros(shape),), torch.zeros(shape))], BOTH)


def test_a_parameter_that_a_subclass_added_is_refused_by_name() -> None:
    layer = nn.LayerNorm(3)
    layer.extra = nn.Parameter(torch.zeros(3))
    with pytest.raises(InputError, match="extra"):
        LayerNormGradients(layer, [Use((torch.zeros(2, 3),), torch.zeros(2, 3))], BOTH | {"extra"})


def test_a_record_that_is_not_finite_is_left_out_by_weight_zero() -> None:
    given, gradient = torch.randn(2, 4), torch.ones(2, 4)
    given[1, 0] = torch.inf
    told = LayerNormGradients(nn.LayerNorm(4), [Use((given,), gradient)], BOTH)
    sums = told.weighted_sums(torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(sums["weight"].float(), told.per_record("weight")[0])

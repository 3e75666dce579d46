import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_oracle import Call, check
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.rules.embedding import EmbeddingBagGradients, EmbeddingGradients
from lethe.train.clipping.rules.rule import Use

WEIGHT = frozenset({"weight"})
BATCHES = st.integers(0, 4)


def table_call(layer: nn.Embedding, shape: tuple[int, ...]) -> Call:
    indices = torch.randint(layer.num_embeddings, shape)
    gradient = torch.randn(*shape, layer.embedding_dim, dtype=layer.weight.dtype)
    return Call(
        arguments=(indices,),
        alone=lambda module, i: [module(indices[i : i + 1])],
        cotangents=lambda i: [gradient[i : i + 1]],
        gradients=(gradient,),
    )


@pytest.mark.slow
@given(
    batch=BATCHES,
    inner=st.lists(st.lists(st.integers(1, 4), max_size=2), min_size=1, max_size=3),
    padding=st.sampled_from([None, 0, 2]),
    sparse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_tables_of_any_index_shape_used_several_times(
    batch: int, inner: list[list[int]], padding: int | None, sparse: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = nn.Embedding(4, 3, padding_idx=padding, sparse=sparse, dtype=torch.float64)
    check(EmbeddingGradients, layer, [table_call(layer, (batch, *shape)) for shape in inner], batch)


def test_a_large_table_costs_no_table_per_record() -> None:
    layer = nn.Embedding(3_000_000, 16, device="meta")
    indices, gradient = torch.randint(3_000_000, (64, 128)), torch.randn(64, 128, 16)
    norms = EmbeddingGradients(layer, [Use((indices,), gradient)], WEIGHT).squared_norms()
    # 3e6 rows and 128 tokens: all but a few records look up distinct rows
    torch.testing.assert_close(norms.median(), gradient.double().square().sum((1, 2)).median(), rtol=0.02, atol=0)


@pytest.mark.slow
@given(dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), seed=st.integers(0, 99))
def test_tables_in_lower_precision_are_measured_in_float32(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.Embedding(5, 3, dtype=dtype)
    call = table_call(layer, (3, 6))
    wide = nn.Embedding(5, 3, dtype=torch.float64)
    told = EmbeddingGradients(layer, [call.use()], WEIGHT)
    gradient = call.gradients[0]
    assert gradient is not None
    exact = EmbeddingGradients(wide, [Use(call.arguments, gradient.double())], WEIGHT)
    assert told.weighted_sums(torch.ones(3))["weight"].dtype == torch.float64
    torch.testing.assert_close(told.squared_norms(), exact.squared_norms(), rtol=1e-5, atol=0)


def bag_calls(layer: nn.EmbeddingBag, indices: Tensor, gradient: Tensor, factors: Tensor | None) -> Call:
    def alone(module: nn.Module, i: int) -> list[Tensor]:
        own = None if factors is None else factors[i : i + 1]
        # A bag of its own, by offsets, whichever way the batch came.
        offsets = torch.tensor([0, indices.shape[1]] if layer.include_last_offset else [0])
        return [module(indices[i], offsets, None if own is None else own[0])]

    return Call(
        arguments=(indices,),
        keywords={"per_sample_weights": factors},
        alone=alone,
        cotangents=lambda i: [gradient[i : i + 1]],
        gradients=(gradient,),
    )


@pytest.mark.slow
@given(
    batch=BATCHES,
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    mode=st.sampled_from(["sum", "mean", "max"]),
    padding=st.sampled_from([None, 1]),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bags_of_one_length(batch: int, counts: list[int], mode: str, padding: int | None, weighted: bool, seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.EmbeddingBag(4, 3, mode=mode, padding_idx=padding, dtype=torch.float64)
    calls = []
    for count in counts:
        indices, gradient = torch.randint(4, (batch, count)), torch.randn(batch, 3, dtype=torch.float64)
        factors = torch.randn(batch, count, dtype=torch.float64) if weighted and mode == "sum" else None
        calls.append(bag_calls(layer, indices, gradient, factors))
    check(EmbeddingBagGradients, layer, calls, batch)


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(0, 4), max_size=4),
    mode=st.sampled_from(["sum", "mean", "max"]),
    padding=st.sampled_from([None, 1]),
    last=st.booleans(),
    weighted=st.booleans(),
    ties=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bags_by_offsets(lengths: list[int], mode: str, padding: int | None, last: bool, weighted: bool, ties: bool, seed: int) -> None:
    torch.manual_seed(seed)
    batch, total = len(lengths), sum(lengths)
    layer = nn.EmbeddingBag(4, 3, mode=mode, padding_idx=padding, include_last_offset=last, dtype=torch.float64)
    if ties:
        with torch.no_grad():
            layer.weight.round_()
    indices, ends = torch.randint(4, (total,)), torch.tensor([0, *lengths]).cumsum(0)
    factors = torch.randn(total, dtype=torch.float64) if weighted and mode == "sum" else None
    gradient = torch.randn(batch, 3, dtype=torch.float64)

    def alone(module: nn.Module, i: int) -> list[Tensor]:
        part = slice(int(ends[i]), int(ends[i + 1]))
        offsets = torch.tensor([0, lengths[i]] if last else [0])
        return [module(indices[part], offsets, None if factors is None else factors[part])]

    call = Call(
        arguments=(indices, ends if last else ends[:-1], factors),
        alone=alone,
        cotangents=lambda i: [gradient[i : i + 1]],
        gradients=(gradient,),
    )
    check(EmbeddingBagGradients, layer, [call], batch)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(("option", "word"), [({"scale_grad_by_freq": True}, "how often"), ({"max_norm": 1.0}, "rescales")])
def test_options_that_mix_records_are_refused(kind: type[nn.Module], option: dict[str, object], word: str) -> None:
    layer = kind(4, 3, **option)
    rule = EmbeddingGradients if kind is nn.Embedding else EmbeddingBagGradients
    with pytest.raises(InputError, match=word):
        rule(layer, [Use((torch.zeros(2, 3, dtype=torch.long),), torch.zeros(2, 3))], WEIGHT)


def test_a_single_index_is_refused() -> None:
    with pytest.raises(InputError, match="without dimensions"):
        EmbeddingGradients(nn.Embedding(4, 3), [Use((torch.tensor(1),), torch.zeros(3))], WEIGHT)


def test_a_record_that_is_not_finite_is_left_out_by_weight_zero() -> None:
    gradient = torch.ones(2, 2, 3)
    gradient[1] = torch.nan
    told = EmbeddingGradients(nn.Embedding(4, 3), [Use((torch.tensor([[0, 1], [1, 2]]),), gradient)], WEIGHT)
    assert float(told.squared_norms()[0]) == pytest.approx(6, rel=1e-6)
    assert told.squared_norms()[1].isnan()
    sums = told.weighted_sums(torch.tensor([1.0, 0.0]))["weight"]
    assert sums.tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3]

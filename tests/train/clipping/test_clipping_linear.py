import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from per_record import assert_clips_like_single_records
from torch import Tensor, nn

from lethe.train.clipping import Clipper
from lethe.train.clipping.rules.linear import LinearGradients
from lethe.train.clipping.rules.registry import gives_fresh_views
from lethe.train.clipping.rules.rule import Use


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    records=st.integers(1, 5),
    leading=st.lists(st.integers(1, 4), max_size=3),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 99),
)
def test_any_leading_dimensions(
    records: int, leading: list[int], widths: tuple[int, int], bias: bool, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    model = nn.Linear(*widths, bias=bias).to(dtype)
    assert_clips_like_single_records(model, torch.randn(records, *leading, widths[0], dtype=dtype))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("positions", [2, 3, 40])
@pytest.mark.parametrize("widths", [(50, 60), (3, 2)])
def test_ghost_norms_and_formed_norms_agree_with_single_records(positions: int, widths: tuple[int, int]) -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(nn.Linear(*widths).double(), torch.randn(4, positions, widths[0], dtype=torch.float64))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(input=given)))


def test_a_layer_called_twice_adds_before_the_norm() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Twice().double(), torch.randn(5, 4, dtype=torch.float64))


def test_inputs_that_are_not_contiguous() -> None:
    torch.manual_seed(0)
    batch = torch.randn(3, 4, 5, dtype=torch.float64).transpose(1, 2)
    assert_clips_like_single_records(nn.Linear(4, 2).double(), batch)


def test_frozen_weight_or_bias() -> None:
    torch.manual_seed(0)
    for name in ("weight", "bias"):
        model = nn.Linear(4, 2).double()
        getattr(model, name).requires_grad_(False)
        assert_clips_like_single_records(model, torch.randn(3, 4, dtype=torch.float64))


def test_an_empty_batch_has_norms_of_no_records_and_sums_of_zero() -> None:
    layer = nn.Linear(4, 2)
    told = LinearGradients(layer, [Use(inputs=(torch.zeros(0, 3, 4),), grad_output=torch.zeros(0, 3, 2))], frozenset(("weight", "bias")))
    assert told.squared_norms().shape == (0,)
    assert all((tensor == 0).all() for tensor in told.weighted_sums(torch.zeros(0)).values())
    assert told.per_record("weight").shape == (0, 2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("first", [nn.Identity(), nn.LayerNorm(4)])
def test_what_changes_an_output_of_several_positions_in_place_is_followed(first: nn.Module) -> None:
    """Such an output is a view of a product's result, whose place in the graph would move with the change."""
    torch.manual_seed(0)
    model = nn.Sequential(first, nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 5), nn.Hardtanh(inplace=True)).double()
    assert_clips_like_single_records(model, torch.randn(3, 7, 4, dtype=torch.float64))


@pytest.mark.slow
def test_so_is_one_of_the_conv1d_of_transformers_which_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = pytest.importorskip("transformers.pytorch_utils")
    torch.manual_seed(0)
    layer, batch = layers.Conv1D(6, 4), torch.randn(3, 7, 4, dtype=torch.float64)
    assert gives_fresh_views(layer)
    model = nn.Sequential(layer, nn.ReLU(inplace=True), layers.Conv1D(5, 6), nn.Hardtanh(inplace=True)).double()
    assert_clips_like_single_records(model, batch)
    clipper, clones = Clipper(model, verify=False), list[Tensor]()
    clone = Tensor.clone
    monkeypatch.setattr(Tensor, "clone", lambda tensor, **more: (clones.append(tensor), clone(tensor, **more))[1])
    with clipper.recording():
        model(batch)
    assert not clones


def test_nobody_else_s_view_counts_as_fresh() -> None:
    class Conv1D(nn.Linear):
        pass

    assert not any(gives_fresh_views(layer) for layer in (Conv1D(2, 2), nn.LayerNorm(2), nn.Embedding(2, 2)))

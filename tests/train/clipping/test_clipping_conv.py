from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from per_record import assert_clips_like_single_records
from torch import nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.rules.convolution import correlations
from lethe.train.clipping.rules.convolution.correlations import Correlations
from lethe.train.clipping.rules.convolution.layers import ConvGradients
from lethe.train.clipping.rules.rule import Use
from lethe.train.clipping.workspace import Workspace

# torch says once per process that it copies the input then, whichever test comes first.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LENGTHS = ((9,), (7, 6), (5, 4, 4))


@st.composite
def shapes(draw: st.DrawFn, dimensions: int) -> dict[str, Any]:
    groups = draw(st.integers(1, 3))
    return {
        "in_channels": groups * draw(st.integers(1, 3)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": draw(st.integers(1, 3 if dimensions < 3 else 2)),
        "stride": draw(st.integers(1, 2)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "bias": draw(st.booleans()),
    }


def batch_for(shape: dict[str, Any], dimensions: int, records: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(records, shape["in_channels"], *LENGTHS[dimensions - 1], dtype=dtype)


@pytest.fixture(params=["cheaper", "gram", "formed", "chunked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way to a norm, whatever the shape's own choice would be."""
    if request.param in ("gram", "formed", "chunked"):
        monkeypatch.setattr(Correlations, "_gram_is_cheaper", lambda _: request.param == "gram")
    if request.param == "chunked":
        monkeypatch.setattr(correlations, "_HELD", 1)
        monkeypatch.setattr(correlations, "_FRESH", 1)
        monkeypatch.setattr(correlations, "_pieces", lambda: 1)
    monkeypatch.setattr(correlations, "_CACHED", 200)  # so that Gram matrices are chunked as well
    return str(request.param)


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["cheaper", "gram", "formed", "chunked"], indirect=True)
def test_convolutions(dimensions: int, way: str) -> None:
    @settings(max_examples=8)
    @given(
        shape=shapes(dimensions), padding=st.sampled_from([0, 1, 2, "same", "valid"]), records=st.integers(1, 4), seed=st.integers(0, 99)
    )
    def check(shape: dict[str, Any], padding: int | str, records: int, seed: int) -> None:
        torch.manual_seed(seed)
        if padding == "same":
            shape["stride"] = 1
        model = CONVOLUTIONS[dimensions - 1](**shape, padding=padding).double()
        assert_clips_like_single_records(model, batch_for(shape, dimensions, records))

    check()


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["cheaper", "gram", "formed"], indirect=True)
def test_transposed_convolutions(dimensions: int, way: str) -> None:
    @settings(max_examples=8)
    @given(shape=shapes(dimensions), padding=st.integers(0, 1), extra=st.integers(0, 1), records=st.integers(1, 4), seed=st.integers(0, 99))
    def check(shape: dict[str, Any], padding: int, extra: int, records: int, seed: int) -> None:
        torch.manual_seed(seed)
        extra = min(extra, max(shape["stride"], shape["dilation"]) - 1)
        model = TRANSPOSED[dimensions - 1](**shape, padding=padding, output_padding=extra).double()
        assert_clips_like_single_records(model, batch_for(shape, dimensions, records))

    check()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [1, (2, 1), "same"])
def test_padding_modes(mode: Any, padding: Any) -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(2, 3, (3, 2), padding=padding, padding_mode=mode).double()
    assert_clips_like_single_records(model, torch.randn(3, 2, 5, 6, dtype=torch.float64))


def test_lengths_that_differ_between_dimensions() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(2, 4, (3, 1), stride=(1, 2), padding=(2, 0), dilation=(2, 1), groups=2).double()
    assert_clips_like_single_records(model, torch.randn(3, 2, 7, 5, dtype=torch.float64))


@pytest.mark.parametrize(("channels", "side"), [((8, 16), 4), ((1, 4), 12)])
def test_float32(channels: tuple[int, int], side: int) -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(nn.Conv2d(*channels, 3, padding=1), torch.randn(5, channels[0], side, side))


class TwoSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(2, 2, 3)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(given)))


def test_one_kernel_on_two_sizes() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(TwoSizes().double(), torch.randn(4, 2, 9, dtype=torch.float64))


def test_positions_that_cancel_do_not_hide_a_gradient() -> None:
    """In float32 the Gram matrices of this record sum to rounding errors of the size of its squared norm, or below 0."""
    torch.manual_seed(0)
    layer = nn.Conv1d(64, 64, 1, bias=False)
    first = torch.randn(1, 64, 1)
    given = torch.cat([first, first], dim=2)
    gradient = torch.randn(1, 64, 1)
    gradient = torch.cat([gradient, -gradient * (1 + 1e-6)], dim=2)
    told = ConvGradients(layer, [Use(inputs=(given,), grad_output=gradient)], frozenset(("weight",)))
    part = told.parts["weight"]
    assert isinstance(part, Correlations)
    assert part._gram_is_cheaper()
    exact = float(told.per_record("weight").double().square().sum())
    assert float(told.squared_norms()) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("uses", [1, 2])
def test_inputs_are_let_go_of_where_gradients_are_kept(uses: int) -> None:
    layer, weights = nn.Conv2d(3, 4, 3, padding=1), torch.tensor([0.5, 0.0, 2.0, 1.0])
    calls = [Use(inputs=(torch.randn(4, 3, 9, 9),), grad_output=torch.randn(4, 4, 9, 9), keywords={}) for _ in range(uses)]
    part = ConvGradients(layer, calls, frozenset(("weight",))).parts["weight"]
    assert isinstance(part, Correlations)
    expected = torch.tensordot(weights, part.per_record(), dims=1)
    with Workspace().open():
        part.settle()
        assert not part.whole
        assert sum(factor.numel() for factor in part._factors()) == 0
        torch.testing.assert_close(part.weighted_sum(weights).float(), expected)


def test_an_empty_batch() -> None:
    layer = nn.Conv2d(2, 3, 3)
    use = Use(inputs=(torch.zeros(0, 2, 5, 5),), grad_output=torch.zeros(0, 3, 3, 3))
    told = ConvGradients(layer, [use], frozenset(("weight", "bias")))
    assert told.squared_norms().shape == (0,)
    assert (told.weighted_sums(torch.zeros(0))["weight"] == 0).all()
    assert told.per_record("weight").shape == (0, 3, 2, 3, 3)


def test_an_image_without_records_is_refused() -> None:
    clipper = Clipper(nn.Conv2d(2, 3, 3), verify=False)
    with clipper.recording():
        output = clipper.model(torch.randn(2, 5, 5))
    with pytest.raises(InputError, match=r"3 dimensions; it needs 4|losses: got 3"):
        clipper.backward(output.sum((1, 2)))

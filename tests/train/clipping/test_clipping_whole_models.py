"""Whole models against single records: sums, norms and bounds, in every arithmetic and division of a batch."""

import copy
import math

import pytest
import torch
from per_record import assert_clips_like_single_records, clipped_sums, gradients_of_records, norms_of, squares
from torch import Tensor, nn
from torch.nn import functional
from whole_models import IMAGES, MODELS, ROWS, SEQUENCES, built

from lethe.train.clipping import METHODS, Clipper, Group


def sums_of(clipper: Clipper, batch: Tensor, counted: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    with clipper.recording():
        output = clipper.model(batch)
    clipper.backward(squares(output), counted)
    return clipper.take()


def flat(sums: dict[nn.Parameter, Tensor]) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in sums.values()])


@pytest.mark.sampled(10)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the clipper could not check everything")  # orthogonal weights do not take NaN
@pytest.mark.parametrize("name", MODELS)
def test_they_clip_like_single_records(name: str) -> None:
    model, batch = built(name)
    assert assert_clips_like_single_records(model, batch).verified is not None
    assert_clips_like_single_records(model, batch, verify=False)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_float32_agrees_with_float64(name: str) -> None:
    """Against an oracle in float64: the worst measured are 5.6e-6 in sums, of which 3.8e-6 are room for rounding, and 1.5e-6 in norms."""
    model, batch = built(name, torch.float32)
    exact, exact_batch = built(name)
    gradients = gradients_of_records(exact, exact_batch)
    norms = norms_of(gradients)
    for clip_norm in (1e9, float(norms.median()), 0.5 * float(norms.min())):
        clipper = Clipper(model, clip_norm=clip_norm, verify=False)
        difference = flat(sums_of(clipper, batch)) - flat(clipped_sums(gradients, clip_norm))
        assert clipper.last_norms is not None
        assert torch.allclose(clipper.last_norms, norms, rtol=1e-5, atol=0)
        assert float(difference.norm()) <= 1e-5 * float(norms.clamp(max=clip_norm).sum())


@pytest.mark.sampled(25)
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("name", ["packed lstm", "tied language model", "flat bags", "attention, time first", "excited", "bare", "hyper"])
def test_micro_batches_of_any_size_make_the_same_sums(name: str, size: int) -> None:
    model, batch = built(name)
    batch = torch.cat([batch, batch.flip(0), batch])[:14]
    expected = sums_of(Clipper(model, clip_norm=0.5), batch)
    clipper = Clipper(model, clip_norm=0.5)
    for part in batch.split(size):
        with clipper.recording():
            output = model(part)
        clipper.backward(squares(output))
    for parameter, tensor in clipper.take().items():
        assert torch.allclose(tensor, expected[parameter], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["tied language model", "tied attention", "tied autoencoder", "three ways"])
def test_groups_and_methods_are_those_of_single_records(name: str, method: str) -> None:
    model, batch = built(name)
    names = [key for key, _ in model.named_parameters()]
    groups = (Group(parameters=tuple(names[::2]), clip_norm=0.3), Group(parameters=("*",), clip_norm=0.4))
    gradients = gradients_of_records(model, batch)
    sums = sums_of(Clipper(model, clip_norm=groups, method=method), batch)
    for group in groups:
        chosen = {p: gradients[p] for key, p in model.named_parameters() if (key in names[::2]) == (group is groups[0])}
        norms = norms_of(chosen)
        factor = METHODS[method].factor(group.clip_norm, norms)
        for parameter, rows in chosen.items():
            assert torch.allclose(sums[parameter], torch.tensordot(factor, rows, dims=1), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["llama", "excited", "tied autoencoder", "bare"])
def test_bfloat16_under_autocast_stays_within_the_bound(name: str) -> None:
    model, batch = built(name, torch.float32)
    for clip_norm in (1e-3, 0.1):
        clipper = Clipper(model, clip_norm=clip_norm, verify=False)
        for record in range(len(batch)):
            with torch.autocast("cpu", torch.bfloat16), clipper.recording():
                output = model(batch)
            clipper.backward(squares(output.float()), torch.arange(len(batch)) == record)
            assert clipper.last_norms is not None
            assert 0.99 * min(clip_norm, float(clipper.last_norms[record])) <= float(flat(clipper.take()).norm()) <= clip_norm


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("power", [-44, 30])
def test_a_record_of_any_size_counts_for_no_more_than_the_bound(name: str, power: int) -> None:
    """Denormal numbers, numbers that overflow, and everything between: the sums with the record less those without."""
    model, batch = built(name, torch.float32)
    if batch.is_floating_point():
        batch[2] = (batch[2].double() * 10.0**power).clamp(-3e38, 3e38).float()
    else:
        with torch.no_grad():
            next(model.parameters())[3].mul_(10.0 ** (power / 2))
    for method in ("clip", "normalise"):
        clipper, others = Clipper(model, clip_norm=1e-2, method=method, verify=False), torch.arange(5) != 2
        change = flat(sums_of(clipper, batch)) - flat(sums_of(clipper, batch, others))
        assert float(change.norm()) <= 1e-2 * (1 + 2e-6)
        assert torch.isfinite(change).all()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_record_whose_loss_is_not_finite_counts_for_nothing(value: float) -> None:
    model, batch = built("llama")
    rest = flat(sums_of(Clipper(model, clip_norm=0.5), batch, torch.arange(5) != 2))
    clipper = Clipper(model, clip_norm=0.5)
    factors = torch.ones(5, dtype=torch.float64)
    factors[2] = value
    for _ in range(3):
        with clipper.recording():
            losses = squares(model(batch)) * factors
        clipper.backward(losses)
        assert torch.allclose(flat(clipper.take()), rest, rtol=1e-12, atol=1e-14)
    broken = batch.clone()
    broken[2] = value
    assert torch.allclose(flat(sums_of(Clipper(model, clip_norm=0.5), broken)), rest, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_a_record_with_no_gradient_adds_nothing_by_any_method() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    batch = ROWS.clone()
    with torch.no_grad():
        next(layer.bias for layer in model if isinstance(layer, nn.Linear)).fill_(-1e-3)
    batch[2] = 0
    for method in METHODS:
        clipper = Clipper(model, method=method)
        assert not flat(sums_of(clipper, batch, torch.arange(5) == 2)).any()


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["channels last", "turned", "stepped", "expanded"])
def test_any_layout_of_the_input(layout: str) -> None:
    model, batch = built("excited")
    wide = torch.randn(5, 3, 8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    laid = {
        "channels last": batch.to(memory_format=torch.channels_last),
        "turned": batch.transpose(2, 3),
        "stepped": wide[..., ::2],
        "expanded": batch[:, :1].expand(-1, 3, -1, -1),
    }[layout]
    assert_clips_like_single_records(model, laid)
    assert_clips_like_single_records(model.to(memory_format=torch.channels_last), laid)  # pyright: ignore


@pytest.mark.slow
def test_a_model_that_is_called_twice() -> None:
    """As for pairs: both calls are in one recording, and both count."""
    model, batch = built("llama")

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Tensor) -> Tensor:
            return self.model(given) * self.model(given.flip(1))

    expected = gradients_of_records(Twice(), batch)
    clipper = Clipper(model, clip_norm=0.5)
    for _ in range(3):
        with clipper.recording():
            output = model(batch) * model(batch.flip(1))
        clipper.backward(squares(output))
        assert torch.allclose(flat(clipper.take()), flat(clipped_sums(expected, 0.5)), rtol=1e-10, atol=1e-12)


def test_a_ctc_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4)).double()

    def loss(output: Tensor) -> Tensor:
        targets, lengths = torch.tensor([[1, 2]]).expand(len(output), 2), torch.full((len(output),), 4)
        return functional.ctc_loss(output.log_softmax(2).transpose(0, 1), targets, lengths, lengths // 2, reduction="none")

    assert_clips_like_single_records(model, SEQUENCES, loss=loss)


def test_dropout_masks_differ_between_records() -> None:
    """Five times the same record: without dropout one norm, with it five."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 2)).double()
    for training, distinct in ((False, 1), (True, 5)):
        clipper = Clipper(model.train(training))
        sums_of(clipper, ROWS[:1].repeat(5, 1))
        assert clipper.last_norms is not None
        assert len(clipper.last_norms.mul(1e9).round().unique()) == distinct


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
def test_dropout_inside_layers_is_that_of_the_forward_pass(verify: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, 0.4, batch_first=True), nn.GroupNorm(2, 4)).double()
    clipper = Clipper(model, clip_norm=1e9, verify=verify)
    torch.manual_seed(3)
    told = flat(sums_of(clipper, SEQUENCES))
    torch.manual_seed(3)
    plain = torch.autograd.grad(squares(model(SEQUENCES)).sum(), list(model.parameters()))
    assert torch.allclose(told, torch.cat([gradient.flatten() for gradient in plain]), rtol=1e-9, atol=1e-9)


def test_no_records_and_one() -> None:
    model, batch = built("llama")
    clipper = Clipper(model)
    expected = gradients_of_records(model, batch[:1])
    assert torch.allclose(flat(sums_of(clipper, batch[:1])), flat(clipped_sums(expected, 1.0)), rtol=1e-10, atol=1e-12)
    with clipper.recording(records=0):
        losses = squares(model(batch[:0]))
    clipper.backward(losses)
    assert not flat(clipper.take()).any()


def test_a_batch_is_left_as_it_was() -> None:
    model, batch = built("excited")
    before = copy.deepcopy(batch)
    sums_of(Clipper(model), batch)
    assert torch.equal(batch, before)
    assert not batch.requires_grad
    assert torch.equal(IMAGES, before)

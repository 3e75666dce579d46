"""Losses, tokens and backward passes that mix records, values kept from a batch, and what only looks like mixing."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mixing_models import Between, centred, rows, step
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import LetheError
from lethe.train import fit
from lethe.train.clipping import Clipper


class InitialisedByData(nn.Module):
    """As ActNorm does: the first batch sets a parameter."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.layer = nn.Linear(4, 4, bias=False), nn.Linear(4, 2)
        self.scale.requires_grad_(not frozen)
        self.begun = False
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        if not self.begun:
            self.scale.weight.data.copy_(torch.diag(1 / given.std(0)))
            self.begun = True
        return self.layer(self.scale(given))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_parameter_that_the_first_batch_sets_is_refused(frozen: bool) -> None:
    with pytest.raises(LetheError):
        step(Clipper(InitialisedByData(frozen)), rows(0))


def test_an_output_that_nothing_can_be_told_of_is_warned_of() -> None:
    class Held:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

    class Hiding(Between):
        def forward(self, given: Tensor, **options: Any) -> Any:
            return Held(super().forward(given))

    model = Hiding(lambda model, hidden: centred(hidden))
    with pytest.warns(UserWarning, match="no tensor with the records first"):
        step(Clipper(model), rows(0), lambda model, batch: model(batch).tensor)


def entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def of_their_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = entropies(outputs, targets)
    return losses / losses.detach().mean()


def hard_ones(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = entropies(outputs, targets)
    return losses * (losses > losses.median())


def of_rare_classes(outputs: Tensor, targets: Tensor) -> Tensor:
    return entropies(outputs, targets) / torch.bincount(targets, minlength=3)[targets]


@pytest.mark.parametrize("loss", [of_their_mean, hard_ones, of_rare_classes])
def test_a_loss_that_mixes_records_by_detached_values_is_refused_by_fit(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    run = lethe.Run(records=20, batches=lethe.Cyclic(size=10), passes=1, step_size=0.1, clip_norm=1.0, noise_multiplier=1.0, release="all")
    with warnings.catch_warnings(), pytest.raises(LetheError):
        fit(nn.Linear(4, 3), loss, (rows(0, 20).float().numpy(), (torch.arange(20) % 3).numpy()), run, seed=1)


class Words(nn.Module):
    def __init__(self, strength: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.places, self.head, self.strength = nn.Embedding(9, 4), nn.Embedding(6, 4), nn.Linear(4, 2), strength
        self.places.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        own = hidden.mean(1)
        return self.head(own + self.strength * hidden.detach().mean((0, 1)) if self.strength else own)


@pytest.mark.slow
def test_mixing_of_tokens_below_rounding_is_found_and_positions_are_left_alone() -> None:
    """As many positions as records: only what one record changes the number of is told to be tokens."""
    tokens = torch.randint(9, (6, 6), generator=torch.Generator().manual_seed(0))
    with pytest.raises(LetheError, match="where others are NaN"):
        step(Clipper(Words(1e-12)), tokens)
    for _ in range(5):
        clipper = Clipper(Words(0.0))
        step(clipper, tokens)
        assert clipper.verified == "checked"


class WithStatistic(nn.Module):
    """Tells how its records spread over some prototypes, as a mixture of experts does, beside its outputs."""

    def __init__(self, prototypes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.prototypes = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, prototypes)
        self.double()

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        near = self.prototypes(hidden := torch.tanh(self.first(given)).mean(1))
        return self.last(hidden) + near.sum(1, keepdim=True), near.softmax(1).mean(0)


@pytest.mark.parametrize("prototypes", [1, 2, 3, 5, 8])
def test_a_statistic_as_long_as_a_few_records_are_many_is_none_of_their_outputs(prototypes: int) -> None:
    clipper = Clipper(WithStatistic(prototypes))
    for places in (5, 6):  # the second batch has another shape, and is asked as the first
        batch = torch.randn(16, places, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(places))
        step(clipper, batch, lambda model, batch: model(batch)[0])
        assert clipper.verified == "checked"


def test_a_statistic_that_may_be_the_outputs_of_its_batch_is_refused() -> None:
    with pytest.raises(LetheError, match="depends on the other records"):
        step(Clipper(WithStatistic(16)), torch.randn(16, 5, 4, dtype=torch.float64), lambda model, batch: model(batch)[0])


class BesideAttention(nn.Module):
    """Mixes where the attention layer inside drops numbers: the check would see another model if it silenced that."""

    def __init__(self, honest: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.last, self.honest = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 2), honest
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.attention(given, given, given)[0].mean(1)
        return self.last(hidden if self.honest or self.attention.dropout == 0 else centred(hidden))


@pytest.mark.slow
def test_mixing_that_depends_on_a_dropout_attribute_is_found() -> None:
    batch = torch.randn(6, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(LetheError):
        step(Clipper(BesideAttention(honest=False)), batch)
    clipper = Clipper(BesideAttention(honest=True))
    step(clipper, batch)
    assert clipper.verified == "checked"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_backward_pass_that_is_not_linear_mixes_nothing(dtype: torch.dtype) -> None:
    """Clamped gradients, as in recurrent networks, are each record's own."""

    def between(model: Any, hidden: Tensor) -> Tensor:
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        return hidden

    clipper = Clipper(Between(between).to(dtype))
    step(clipper, rows(0, 40).to(dtype))
    assert clipper.verified == "checked"


@pytest.mark.nightly(by_day="test_a_backward_pass_that_is_not_linear_mixes_nothing")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
def test_an_encoder_in_eval_mode_whose_padding_is_left_out_without_gradients_passes() -> None:
    """With gradients disabled PyTorch takes another path and writes zeros at the padding."""
    torch.manual_seed(0)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 2)

        def forward(self, given: Tensor, padding: Tensor) -> Tensor:
            return self.inner(given, src_key_padding_mask=padding)

    model = Padded().eval()
    given, padding = torch.randn(6, 5, 8), torch.arange(5) >= torch.tensor([5, 3, 4, 5, 2, 5])[:, None]
    for _ in range(3):
        clipper = Clipper(model)
        step(clipper, given, lambda model, batch: model(batch, padding))
        assert clipper.verified == "checked"

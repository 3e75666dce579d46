"""Models, losses and loops that mix records only in some cases: found, whatever the case."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import squares
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import LetheError
from lethe.train import fit
from lethe.train.clipping import Clipper


class Between(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(4, 5), nn.Linear(5, 2), between
        self.double()

    def forward(self, given: Tensor, **options: Any) -> Any:
        return self.last(torch.tanh(self.between(self, self.first(given), **options)))


def rows(seed: int, records: int = 6) -> Tensor:
    return torch.randn(records, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def centred(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().mean(0)


def step(clipper: Clipper, batch: Tensor, call: Callable[[nn.Module, Tensor], Tensor] | None = None) -> Tensor:
    with clipper.recording():
        output = clipper.model(batch) if call is None else call(clipper.model, batch)
    clipper.backward(squares(output))
    return torch.cat([tensor.flatten() for tensor in clipper.take().values()])


def refused_or_bounded(make: Callable[[], nn.Module], batches: list[Tensor], call: Any = None, record: int = 2) -> bool:
    """Whether training stops, or the last sum without the record differs from that with it by no more than C."""
    others = [row for row in range(len(batches[-1])) if row != record]
    sums: list[Tensor] = []
    for last in (batches[-1], batches[-1][others]):
        clipper = Clipper(make(), clip_norm=0.1)
        try:
            sums.append([step(clipper, batch, call) for batch in (*batches[:-1], last)][-1])
        except LetheError:
            return True
    return float((sums[0] - sums[1]).norm()) <= 0.1 * (1 + 1e-9)


def outlying(batches: int = 3, records: int = 6) -> list[Tensor]:
    """The last batch, which is the third and not checked, holds an outlier."""
    made = [rows(seed, records) for seed in range(batches)]
    made[-1][2] *= 100
    return made


class Remembering(nn.Module):
    """Keeps something of what it saw, not in a buffer, and uses it in the next pass."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.layer, self.kept, self.seen = kind, nn.Linear(4, 3).double(), None, {"mean": 0.0}

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.layer(given)
        if self.kind == "rows":
            out = hidden if self.kept is None or len(self.kept) != len(hidden) else hidden + self.kept
            self.kept = torch.tanh(hidden).detach()
            return out
        out = hidden - self.seen["mean"]
        self.seen["mean"] = 0.9 * self.seen["mean"] + 0.1 * float(hidden.detach().mean())
        return out


@pytest.mark.parametrize("kind", ["rows", "a number"])
def test_what_is_kept_outside_of_buffers_is_found(kind: str) -> None:
    with pytest.raises(LetheError, match="depends on the other records"):
        step(Clipper(Remembering(kind)), rows(0))


def counting(after: int) -> Callable[[Any, Tensor], Tensor]:
    def between(model: Any, hidden: Tensor) -> Tensor:
        model.passes = getattr(model, "passes", 0) + 1
        return centred(hidden) if model.passes > after else hidden

    return between


@pytest.mark.parametrize("after", [1, 5, 8])
def test_mixing_that_begins_after_some_passes_is_found(after: int) -> None:
    assert refused_or_bounded(lambda: Between(counting(after)), outlying(6))


def top_of_the_batch(model: Any, hidden: Tensor) -> Tensor:
    return hidden * (hidden.detach()[:, 0] >= hidden.detach()[:, 0].median())[:, None]


def test_records_above_the_median_of_their_batch_are_found() -> None:
    model, batch = Between(top_of_the_batch), rows(0)
    batch = batch[model.first(batch)[:, 0].argsort(descending=True)]
    with pytest.raises(LetheError):
        step(Clipper(model), batch)


def of_the_largest(model: Any, hidden: Tensor) -> Tensor:
    return hidden / hidden.detach().abs().max()


def shifted(model: Any, hidden: Tensor) -> Tensor:
    return hidden + 0.5 * hidden.detach().roll(1, 0)


def routed(model: Any, hidden: Tensor) -> Tensor:
    """Two experts that take three records each, those that come first; the others pass by."""
    expert = (hidden.detach()[:, 0] > 0).long()
    place = torch.stack([expert.eq(number).cumsum(0) * expert.eq(number) for number in (0, 1)]).sum(0)
    return hidden * (place <= 3)[:, None]


def in_the_backward_pass(model: Any, hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient / gradient.norm())
    return hidden


@pytest.mark.parametrize("between", [of_the_largest, shifted, in_the_backward_pass])
def test_what_scales_or_shifts_over_the_batch_is_found(between: Callable[[Any, Tensor], Tensor]) -> None:
    with pytest.raises(LetheError, match=r"depends on the other records|is off by"):
        step(Clipper(Between(between)), rows(0))


def only_outliers(model: Any, hidden: Tensor) -> Tensor:
    largest = hidden.detach().abs().max()
    return hidden / largest if largest > 10 else hidden


def only_with_gradients(model: Any, hidden: Tensor) -> Tensor:
    return centred(hidden) if torch.is_grad_enabled() else hidden


def only_large_batches(model: Any, hidden: Tensor) -> Tensor:
    return centred(hidden) if len(hidden) > 8 else hidden


class MixedDropout(nn.Dropout):
    def forward(self, input: Tensor) -> Tensor:
        return centred(input) if self.training else input


class WithMixedDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 5), MixedDropout(), nn.Tanh(), nn.Linear(5, 2)).double()

    def forward(self, given: Tensor) -> Tensor:
        return self.layers(given)


def saved_coarsely(model: Any, hidden: Tensor) -> Tensor:
    """What the backward pass needs is kept as the mean of the batch, as compression with one scale for all does."""

    def pack(tensor: Tensor) -> Tensor:
        return tensor.detach().mean(0).expand_as(tensor) if tensor.shape == hidden.shape else tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return functional.gelu(hidden)


def test_experts_without_room_for_all_records_are_found() -> None:
    """Those that come first never lack room."""
    with pytest.raises(LetheError):
        step(Clipper(Between(routed)), rows(0, 12))


def test_mixing_by_outliers_is_found() -> None:
    assert refused_or_bounded(lambda: Between(only_outliers), outlying())


def test_mixing_where_gradients_are_enabled_is_found() -> None:
    assert refused_or_bounded(lambda: Between(only_with_gradients), outlying())


def test_mixing_in_a_subclass_of_dropout_is_found() -> None:
    assert refused_or_bounded(WithMixedDropout, outlying())


def test_mixing_in_large_batches_is_found() -> None:
    assert refused_or_bounded(lambda: Between(only_large_batches), [rows(0), rows(1), 100 * rows(2, 20)])


def test_mixing_in_a_second_call_of_the_model_is_found() -> None:
    def between(model: Any, hidden: Tensor, mix: bool = False) -> Tensor:
        return centred(hidden) if mix else hidden

    assert refused_or_bounded(lambda: Between(between), outlying(), lambda model, batch: model(batch) + model(batch, mix=True))


def test_mixing_in_what_is_kept_for_the_backward_pass_is_found() -> None:
    assert refused_or_bounded(lambda: Between(saved_coarsely), outlying())


def test_a_pair_of_many_records_that_mixes_with_a_gradient_is_found() -> None:
    with pytest.raises(LetheError):
        step(Clipper(Between(lambda model, hidden: torch.cat([hidden[:1] + hidden[1:2], hidden[1:]]))), rows(0, 64))


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


def test_mixing_of_tokens_below_rounding_is_found_and_positions_are_left_alone() -> None:
    """As many positions as records: only what one record changes the number of is told to be tokens."""
    tokens = torch.randint(9, (6, 6), generator=torch.Generator().manual_seed(0))
    with pytest.raises(LetheError, match="where others are NaN"):
        step(Clipper(Words(1e-12)), tokens)
    for _ in range(5):
        clipper = Clipper(Words(0.0))
        step(clipper, tokens)
        assert clipper.verified == "checked"


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

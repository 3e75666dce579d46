"""Models that mix records only in some cases: found, whatever the case."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mixing_models import Between, centred, outlying, refused_or_bounded, rows, step
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import LetheError
from lethe.train.clipping import Clipper


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
    with pytest.raises(LetheError, match="keeps what it saw"):
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


def contents(rows: Tensor) -> int:
    return int(rows.nan_to_num().abs().sum().clamp(max=1e6) * 1000)


def seeded(seed: Callable[[Tensor], int], *, of: str, by_pytorch: bool) -> Callable[[Any, Tensor], Tensor]:
    """Draws something of which nothing is seen: as where a mask leaves the same out by chance."""

    def between(model: Any, hidden: Tensor) -> Tensor:
        for some in hidden.detach().split(len(hidden) if of == "the batch" else 1):
            with torch.random.fork_rng([]):
                own = torch.manual_seed(seed(some)) if by_pytorch else torch.Generator().manual_seed(seed(some))
                hidden = hidden * (torch.rand(5, generator=None if by_pytorch else own) > -1)
        return hidden

    return between


@pytest.mark.parametrize("by_pytorch", [False, True])
def test_a_seed_of_the_batch_is_refused_whatever_is_drawn(by_pytorch: bool) -> None:
    for seed in range(3):
        with pytest.raises(LetheError, match="draws for a record depends on the other records"):
            step(Clipper(Between(seeded(contents, of="the batch", by_pytorch=by_pytorch))), rows(seed))


@pytest.mark.parametrize("by_pytorch", [False, True])
@pytest.mark.parametrize(("seed", "of"), [(contents, "each record"), (lambda rows: 3, "the batch")])
def test_a_seed_of_each_record_or_of_none_is_left_alone(seed: Callable[[Tensor], int], of: str, by_pytorch: bool) -> None:
    clipper = Clipper(Between(seeded(seed, of=of, by_pytorch=by_pytorch)))
    step(clipper, rows(0))
    assert clipper.verified == "checked"


def test_seeds_of_the_clock_are_random_and_no_mixing() -> None:
    """As in the reversible layers of transformers' Reformer."""

    def between(model: Any, hidden: Tensor) -> Tensor:
        torch.manual_seed(torch.seed() % 2**31)
        return hidden

    with pytest.warns(UserWarning, match="random"):
        step(Clipper(Between(between)), rows(0))


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
    """Which records are looked at is random: one training in some seventy is only warned of, three of three one in 300 000 times."""
    told = []
    for _ in range(3):
        clipper = Clipper(Between(lambda model, hidden: torch.cat([hidden[:1] + hidden[1:2], hidden[1:]])))
        with pytest.raises((LetheError, UserWarning), match=r"records|could not check everything") as caught:
            step(clipper, rows(0, 64))
        told.append(caught.type)
    assert any(issubclass(kind, LetheError) for kind in told)

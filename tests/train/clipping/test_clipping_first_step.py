"""What the checks of the first batch ask of a model: few records, and of these everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import clipped, rows, squares
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.checks.gradient_checks import _weights, check_gradients  # what no outcome shows
from lethe.train.clipping.checks.replaced_batch import opposed
from lethe.train.clipping.checks.scaled_losses import check_scaled
from lethe.train.clipping.contributions import backward
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import gradients_at
from lethe.train.clipping.rules.parts import Part, Rows
from lethe.train.clipping.survey import survey
from lethe.train.core.comparison import ALLOWED

RECORDS = 16


class Hidden(nn.Module):
    """Does something to the records between its layers."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.tanh, *, adapted: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6).double(), nn.Linear(6, 3).double()
        self.between = between
        if adapted:  # as in LoRA: what is before hears nothing of the losses at first
            nn.init.zeros_(self.second.weight)

    def forward(self, given: Tensor, *, turned: bool = False) -> Tensor:
        return self.second(self.between(-self.first(given) if turned else self.first(given)))


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records are in each call of a model."""
    counts: list[int] = []
    note, own = counts.append, Hidden.forward  # not the list itself, which the checks would find and put back

    def counting(self: Any, given: Tensor, **more: Any) -> Tensor:
        note(len(given))
        return own(self, given, **more)

    monkeypatch.setattr(Hidden, "forward", counting)
    return counts


@pytest.mark.parametrize("records", [8, 16, 32])
def test_the_first_batch_costs_a_few_passes(passed: list[int], records: int) -> None:
    """The training's own pass, two of the whole batch and one of all but one; two alone, five of three, and of two and three."""
    clipper = Clipper(Hidden())
    clipped(clipper, rows(records))
    assert clipper.verified == "checked"
    assert sum(passed) <= 4 * records - 1 + 2 + 5 * 3 + 2 + 3
    assert sum(count == records for count in passed) == 3


@pytest.mark.slow
def test_what_waits_for_a_gradient_is_compared_in_full_once_for_each_step(passed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.clipping.schedule._ODDS", 10**9)  # no batch is looked at by chance
    model = Hidden(adapted=True)
    clipper = Clipper(model)
    # Micro-batches of one step; then the numbers that hid what is before them are others; then all is checked.
    for seed, step, full in ((1, False, True), (2, False, False), (3, True, True), (4, False, False), (5, False, False)):
        passed.clear()
        with torch.no_grad():
            model.second.weight.fill_(0.1) if step else None
        clipped(clipper, rows(RECORDS, seed=seed))
        assert (sum(passed) > 4 * RECORDS) is full
        assert full or sum(passed) <= 3 * RECORDS
    assert sum(passed) == RECORDS
    assert clipper.verified == "checked"


@pytest.mark.slow
def test_what_zeros_hid_is_refused_at_the_first_step_that_shows_it() -> None:
    for _ in range(8):
        model = Hidden(outliers, adapted=True)
        clipper = Clipper(model)
        clipped(clipper, rows(RECORDS))
        with torch.no_grad():
            model.second.weight.fill_(0.1)
        with pytest.raises(InputError, match="depends on the other records"):
            clipped(clipper, rows(RECORDS, seed=2))


@pytest.mark.slow
def test_another_kind_of_call_is_compared_in_full_while_a_gradient_is_waited_for(passed: list[int]) -> None:
    clipper = Clipper(Hidden(adapted=True))
    # As it was, called in another way, and with a larger batch; then as it was again.
    for turned, records, full in ((False, 16, True), (True, 16, True), (True, 32, True), (True, 16, False)):
        passed.clear()
        with clipper.recording():
            output = clipper.model(rows(records), turned=turned)
        clipper.backward(squares(output))
        assert (sum(passed) > 4 * records) is full


def outliers(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().mean(0) if bool((hidden.abs() > 100).any()) else hidden


def of_large_batches(hidden: Tensor, *, where: Callable[[Tensor], bool]) -> Tensor:
    return hidden - hidden.detach().mean(0) if len(hidden) > 10 and where(hidden.detach()) else hidden


def needing_many(hidden: Tensor, least: int, between: Callable[[Tensor], Tensor]) -> Tensor:
    if len(hidden) < least:
        raise ValueError(f"it needs {least} records")
    return between(hidden)


def alike(hidden: Tensor) -> bool:
    return len(hidden.unique(dim=0)) < len(hidden)


def of_one_record(place: int) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden + 1e-9 * hidden.detach()[place] if torch.is_grad_enabled() else hidden


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    "between",
    [
        outliers,
        lambda hidden: hidden - hidden.detach().mean(0) if len(hidden) > 10 else hidden,
        lambda hidden: hidden - hidden.detach().mean(0) if torch.is_grad_enabled() else hidden,
        lambda hidden: hidden + 0.1 * hidden.detach()[:1],
        lambda hidden: hidden + 1e-9 * hidden.detach()[-1:],
        lambda hidden: hidden + 1e-9 * hidden.detach()[:1],
        lambda hidden: hidden - hidden.detach().nan_to_num().mean(0),
        lambda hidden: hidden + 0.1 * hidden.detach().isnan().any() if torch.is_grad_enabled() else hidden,
        lambda hidden: hidden - hidden.detach().mean(0) if torch.is_grad_enabled() and len(hidden) > 7 else hidden,
        lambda hidden: hidden - hidden.detach().mean(0) if torch.is_grad_enabled() and len(hidden) > 14 else hidden,
        lambda hidden: of_large_batches(hidden, where=lambda given: bool((given.abs() > 100).any())),
        lambda hidden: of_large_batches(hidden, where=alike),
        lambda hidden: needing_many(hidden, 2, outliers),
        lambda hidden: needing_many(hidden, RECORDS, outliers),
        lambda hidden: needing_many(hidden, RECORDS, lambda given: of_large_batches(given, where=alike)),
    ],
    ids=[
        "outliers",
        "large batches",
        "gradients",
        "the first",
        "hardly the last",
        "hardly the first",
        "no number",
        "no number, with gradients",
        "gradients, of eight or more",
        "gradients, of fifteen or more",
        "outliers in large batches",
        "copies in large batches",
        "outliers, but no record alone",
        "outliers, but no few",
        "copies, but no few",
    ],
)
def test_what_only_one_comparison_shows_is_refused_whatever_is_drawn(between: Callable[[Tensor], Tensor]) -> None:
    for seed in range(6):
        with pytest.raises(InputError, match="depends on the other records"):
            clipped(Clipper(Hidden(between)), rows(RECORDS, seed=seed))


@pytest.mark.parametrize("few", [2, 3, 4, 8])
def test_the_ends_of_a_few_are_replaced_where_those_of_the_batch_are_not(few: int) -> None:
    for first in (False, True):
        for last in (False, True):
            replaced = torch.tensor([first, *[False, True] * 7, last])
            found = opposed(replaced, few)
            assert 0 < int(found.sum()) < few
            if few > 2:
                assert (bool(found[0]), bool(found[-1])) == (not first, not last)
    assert torch.equal(opposed(torch.tensor([True, False, False]), 3), torch.tensor([False, True, True]))


def recorded(records: int = 6) -> tuple[Recording, Tensor, dict[nn.Parameter, Part]]:
    """A recording of some records, their losses, and what the rules tell."""
    model = Hidden()
    found = survey(model)
    recording = Recording(model, found, Decisions(), records=records, attached=True)
    recording.open()
    losses = squares(model(rows(records)))
    recording.close()
    return recording, losses, backward(recording, losses.sum(), keep=True)


class Off(Part):
    """A part whose norms, formed gradients or sums are a little off."""

    def __init__(self, part: Part, **factors: float) -> None:
        self.part, self.factors, self.dtype = part, factors, part.dtype

    def squared_norms(self) -> Tensor:
        return self.part.squared_norms() * self.factors.get("norms", 1.0) ** 2

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.part.weighted_sum(weights) * self.factors.get("sums", 1.0)

    def per_record(self) -> Tensor:
        return self.part.per_record()

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        return self.part.formed(rows, dtype) * self.factors.get("formed", 1.0)


@pytest.mark.parametrize("what", [("norms",), ("sums",), ("norms", "formed")])
def test_what_is_off_by_a_millionth_is_refused(what: tuple[str, ...]) -> None:
    recording, losses, parts = recorded()
    assert check_gradients(parts, losses, None, recording).records == 2
    weight = recording.model.second.weight  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InputError, match="plain autograd"):
        check_gradients({**parts, weight: Off(parts[weight], **dict.fromkeys(what, 1 + 1e-6))}, losses, None, recording)


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [(0, 1), (2, 5)])
def test_gradients_that_are_another_record_s_are_refused(swapped: tuple[int, int]) -> None:
    for _ in range(8):  # two of the six records are looked at
        recording, losses, parts = recorded()
        weight = recording.model.second.weight  # pyright: ignore[reportAttributeAccessIssue]
        turned = Rows(parts[weight].per_record().roll(1, 0))
        with pytest.raises(InputError, match="plain autograd"):
            check_gradients({**parts, weight: turned}, losses, None, recording)


def test_the_sums_gradients_are_computed_again_only_where_not_all_records_count(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, losses, _ = recorded()
    assert recording.told
    asked: list[Tensor] = []

    def noted(sites: Any, of: Tensor, weights: Tensor, recording: Recording) -> Any:
        asked.append(weights)
        return gradients_at(sites, of, weights, recording)

    monkeypatch.setattr("lethe.train.clipping.checks.scaled_losses.gradients_at", noted)
    some = torch.tensor([True] * 5 + [False])
    check_scaled(losses, None, recording, summed=True)
    check_scaled(torch.where(some, losses, torch.nan), some, recording, summed=True)
    assert len(asked) == 2
    for told, counted, summed in ((losses, None, False), (torch.where(some, losses, torch.nan), None, True)):
        asked.clear()
        check_scaled(told, counted, recording, summed=summed)
        assert len(asked) == 2
    asked.clear()
    recording.told.clear()  # what is not known is never taken for agreement
    check_scaled(losses, None, recording, summed=True)
    assert len(asked) == 2


@pytest.mark.parametrize("records", [3, 6, 16, 60])
def test_the_others_are_too_faint_for_the_gradients_that_are_compared(records: int) -> None:
    recording, _, parts = recorded(records)
    squares = {parameter: part.squared_norms() for parameter, part in parts.items()}
    norms = torch.stack(list(squares.values())).sum(0).sqrt()
    weights = _weights({2: 1.0, 0: -0.5}, torch.ones(records, dtype=torch.bool), squares, recording)
    assert weights is not None
    assert weights[[2, 0]].tolist() == [1.0, -0.5]
    assert bool((weights.abs().frexp().mantissa == 0.5).all())  # scaling by them rounds nothing
    assert len(weights.unique()) >= min(records, 26)
    others = float((weights.abs() * norms).sum()) - float(norms[2]) - 0.5 * float(norms[0])
    least = min(float(norms[2]), 0.5 * float(norms[0]))
    # A hundredth of a whole gradient is what the least of a parameter is held to, by half of what rounding may do.
    assert others <= 0.1 * 0.5 * 0.01 * ALLOWED[torch.float64] * least


def test_one_backward_pass_serves_both_comparisons_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, losses, parts = recorded()
    asked: list[Any] = []
    own = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *given, **more: asked.append(given) or own(*given, **more))
    assert check_gradients(parts, losses, None, recording, summed=True).records == 2
    assert len(asked) == 1
    recording.precision = torch.float16  # such small numbers vanish in it
    assert check_gradients(parts, losses, None, recording, summed=True).records == 2
    assert len(asked) == 3


class Backwards(torch.autograd.Function):
    """Hands its rows on, and their gradients to other rows."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, mixed: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.mixed = mixed
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.mixed(gradients[0]), None


def two_of_sixteen(gradient: Tensor) -> Tensor:
    mixed = gradient.clone()
    if len(gradient) == RECORDS:
        mixed[3] += 0.1 * gradient[7]
    return mixed


def test_two_records_that_meet_in_the_backward_pass_alone_are_refused() -> None:
    for seed in range(4):  # each is one of the two whose gradients are compared in one seed of eight
        with pytest.raises(InputError, match=r"depends on the other records|plain autograd"):
            clipped(Clipper(Hidden(lambda hidden: Backwards.apply(hidden, two_of_sixteen))), rows(RECORDS, seed=seed))


def test_what_reaches_other_rows_is_refused_even_where_all_sums_agree() -> None:
    """The records are all alike, so that a gradient in another's row is as good in every sum."""
    model = Hidden(lambda hidden: Backwards.apply(hidden, lambda gradient: gradient.roll(1, 0)))
    recording = Recording(model, survey(model), Decisions(), records=6, attached=True)
    recording.open()
    losses = squares(model(rows(1).expand(6, -1)))
    recording.close()
    parts = backward(recording, losses.sum(), keep=True)
    with pytest.raises(InputError, match="depends on the other records"):
        check_gradients(parts, losses, None, recording)


class Begun(Hidden):
    """Another output at its first call than at any later one, which tells nothing of records."""

    begun = False

    def forward(self, given: Tensor, *, turned: bool = False) -> Tensor:
        size, self.begun = (0.5 if self.begun else 1.0), True
        return size * super().forward(given, turned=turned)


def test_a_model_that_does_not_repeat_itself_is_no_model_that_mixes() -> None:
    clipper = Clipper(Begun())
    with pytest.warns(UserWarning, match="random"):
        clipped(clipper, rows(RECORDS))

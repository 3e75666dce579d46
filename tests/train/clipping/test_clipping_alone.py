"""Record by record: the last resort, which needs no rule."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_same, clipped_sums, gradients_of_records, norms_of, squares
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.errors import HypothesisError, InputError, RecordByRecordWarning
from lethe.train.clipping import Clipper
from lethe.train.clipping.unfollowed import RECORD_BY_RECORD, UnfollowedError
from lethe.train.clipping.units import Units
from lethe.train.core.comparison import chance
from lethe.train.network.micro_batches import add_batch

ROWS = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Escaping(torch.autograd.Function):
    """A function of one's own, through which nothing is followed."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(given, factor)
        return given @ factor

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        given, factor = ctx.saved_tensors
        return grad_outputs[0] @ factor.T, given.T @ grad_outputs[0]


class Unfollowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.square, self.unused = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 3)), nn.Linear(2, 2)

    def forward(self, given: Tensor) -> Tensor:
        return Escaping.apply(torch.tanh(self.first(given)), self.square)  # pyright: ignore[reportReturnType]


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(4, 5), nn.Linear(5, 3), reentrant
        self.checkpointed = True

    def forward(self, given: Tensor) -> Tensor:
        if not self.checkpointed:
            return self.second(self.block(given))
        return self.second(checkpoint(self.block, given.clone().requires_grad_(), use_reentrant=self.reentrant))

    def block(self, given: Tensor) -> Tensor:
        return torch.tanh(self.first(given))


class Minor(nn.Module):
    """Two views of each record, all first ones before all second ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(given))
        one, other = self.second(torch.cat([hidden, 2 * hidden])).chunk(2)
        return one - 3 * other


class Penalised(nn.Module):
    """Its output is moved by the length of its own slope."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, given: Tensor) -> Tensor:
        with torch.enable_grad():
            given = given.clone().requires_grad_()
            output = self.second(torch.tanh(self.first(given)))
            slope = torch.autograd.grad(output.sum(), given, create_graph=True)[0]
        return output + slope.square().sum(1, keepdim=True)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a function of one's own": Unfollowed,
    "a checkpoint": lambda: Checkpointed(reentrant=False),
    "a reentrant checkpoint": lambda: Checkpointed(reentrant=True),
    "two views of a record": Minor,
    "a gradient penalty": Penalised,
}


def plainly(model: nn.Module, truth: Callable[[], Any]) -> Any:
    """Without checkpoints: torch.autograd.grad tells nothing of parameters in reentrant ones, and does not say so."""
    model.checkpointed = False  # pyright: ignore[reportArgumentType]
    told = truth()
    model.checkpointed = True  # pyright: ignore[reportArgumentType]
    return told


def added(model: nn.Module, clipper: Clipper, batch: Tensor, counted: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    add_batch(clipper, lambda rows: model(batch[rows]), lambda output, rows: squares(output), len(batch), counted)
    return clipper.take()


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_what_cannot_be_followed_is_trained_record_by_record(name: str, verify: bool) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    gradients = plainly(model, lambda: gradients_of_records(model, ROWS))
    norms = norms_of(gradients)
    clip_norm = float(norms.median())
    clipper = Clipper(model, clip_norm=clip_norm, verify=verify)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    with pytest.warns(RecordByRecordWarning, match="record by record"):
        told = [added(model, clipper, ROWS) for _ in range(3)]  # what only the self-check saw is tried again, three times
    again = added(model, clipper, ROWS)  # it is said no more
    expected = clipped_sums(gradients, clip_norm)
    for sums in (*told, again):
        assert_same(sums, expected, float(norms.clamp(max=clip_norm).sum()))
    counted = torch.tensor([True, False, True, True, False, True])
    few = clipped_sums({parameter: rows[counted] for parameter, rows in gradients.items()}, clip_norm)
    assert_same(added(model, clipper, ROWS, counted), few, float(norms.clamp(max=clip_norm).sum()))
    assert clipper.way == clipper.formed == RECORD_BY_RECORD
    assert verify is (str(clipper.verified).startswith("record by record"))
    assert all(bool((parameter.grad == 7.0).all()) for parameter in model.parameters())


def test_a_batch_that_only_one_check_could_not_follow_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six positions, asked for in the third batch for the first time, pass for six records there: the next one is told per layer."""
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.calls = nn.Embedding(7, 4), nn.Embedding(6, 4), 0

        def forward(self, tokens: Tensor) -> Tensor:
            words = self.words(tokens)
            return words + self.places(torch.arange(tokens.shape[1])) if self.calls > 2 else words

    torch.manual_seed(0)
    model, tokens = Positions().double(), torch.randint(7, (6, 6))
    clipper = Clipper(model, clip_norm=1e9)
    for _ in range(2):
        added(model, clipper, tokens)
    model.calls = 3
    with pytest.warns(RecordByRecordWarning, match="in this batch"):
        whole = added(model, clipper, tokens)
    few = added(model, clipper, tokens[:4])
    assert clipper.way == "per layer"
    assert clipper.formed == "per layer and record by record"
    for batch, told in ((tokens, whole), (tokens[:4], few)):
        gradients = gradients_of_records(model, batch)
        assert_same(told, clipped_sums(gradients, 1e9), float(norms_of(gradients).sum()))


MIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "centred": lambda output: squares(output - output.mean(0)),
    "contrasted": lambda output: (output @ output.T).log_softmax(1).diagonal(),
    "balanced": lambda output: squares(output) + output.softmax(1).mean(0).square().sum(),
}


@pytest.mark.parametrize("mixed", MIXED)
def test_records_that_meet_are_refused_still(mixed: str) -> None:
    torch.manual_seed(0)
    model = Unfollowed().double()
    clipper = Clipper(model)
    with pytest.raises(InputError, match="is another than that of the record alone"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: MIXED[mixed](output), len(ROWS))
    assert not any(tensor.any() for tensor in clipper.take().values())


class Remembering(Unfollowed):
    """Each output is moved by the record before, which is kept where no attribute shows it."""

    def __init__(self) -> None:
        super().__init__()
        memory: list[Tensor] = [torch.zeros(4, dtype=torch.float64)]

        def moved(given: Tensor) -> Tensor:
            before, memory[0] = memory[0], given[-1].detach()
            return given + before

        self.moved = moved

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(self.moved(given))


class Counting(Unfollowed):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.mean: Tensor

    def forward(self, given: Tensor) -> Tensor:
        self.mean.add_(0.1 * given.detach().mean(0))
        return super().forward(given - self.mean)


class Watching(Unfollowed):
    """Keeps what it saw where no output shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))
        self.largest: Tensor

    def forward(self, given: Tensor) -> Tensor:
        self.largest.copy_(given.detach().max().maximum(self.largest))
        return super().forward(given)


@pytest.mark.parametrize("kind", [Remembering, Counting, Watching])
def test_a_model_that_keeps_something_between_records_is_refused(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with pytest.raises(HypothesisError, match=r"keeps what it saw|changed while records"):
        added(model, clipper, ROWS)


def test_a_loss_that_keeps_something_between_records_is_refused() -> None:
    torch.manual_seed(0)
    model, seen = Unfollowed().double(), []

    def loss(output: Tensor) -> Tensor:
        own = squares(output)
        seen.append(float(own.detach().sum()))
        return own / (1 + abs(sum(seen)))

    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with pytest.raises(HypothesisError, match="another one after other records"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: loss(output), len(ROWS))
    assert not any(tensor.any() for tensor in clipper.take().values())


def test_a_batch_that_fails_half_way_adds_nothing() -> None:
    torch.manual_seed(0)
    model = Unfollowed().double()
    clipper = Clipper(model, clip_norm=1e9, way=RECORD_BY_RECORD)
    two = added(model, clipper, ROWS[:2])
    asked = []

    def failing(rows: slice) -> Tensor:
        asked.append(rows)
        if len(asked) == 6:
            raise KeyError("on the way")
        return model(ROWS[rows])

    add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: squares(output), 2)
    with pytest.raises(KeyError):
        add_batch(clipper, failing, lambda output, rows: squares(output), len(ROWS))
    told = clipper.take()
    assert all(torch.equal(told[parameter], two[parameter]) for parameter in two)


def test_padding_among_units_is_refused_here_as_well() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    units, counted = Units(torch.tensor([0, 0, 1, 1, 2, 2]), 3), torch.tensor([True] * 4 + [False] * 2)
    with pytest.raises(InputError, match="counted: given together with units"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: squares(output), len(ROWS), counted, units)
    assert not any(tensor.any() for tensor in clipper.take().values())


def test_batches_of_several_records_are_refused_where_each_is_to_be_alone() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with clipper.recording():
        output = model(ROWS)
    with pytest.raises(InputError, match="physical_size=1"):
        clipper.backward(squares(output))
    with pytest.raises(InputError, match="nothing was recorded"):
        clipper.backward(squares(output[:1]))
    with pytest.raises(InputError, match="way: got 'both'"):
        Clipper(model, way="both")
    with clipper.recording():
        pass
    with pytest.raises(InputError, match="no trained parameter gets a gradient"):
        clipper.backward(torch.zeros(1, requires_grad=True) * 2)


def test_huge_and_missing_gradients_add_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()
    batch = ROWS.clone()
    batch[2] = torch.nan
    clipper = Clipper(model, clip_norm=1e9, way=RECORD_BY_RECORD)
    told = added(model, clipper, batch)
    gradients = gradients_of_records(model, batch[[0, 1, 3, 4, 5]])
    assert_same(told, clipped_sums(gradients, 1e9), float(norms_of(gradients).sum()))


def test_the_refusal_of_a_loop_says_what_to_do() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model)
    with clipper.recording():
        output = model(ROWS)
    with pytest.raises(UnfollowedError, match="physical_size=1"):
        clipper.backward(squares(output))


class Particular(nn.Module):
    """Bears no stand-in for its parameter."""

    def __init__(self, failures: int = 10**6) -> None:
        super().__init__()
        self.layer, self.scale, self.failures = nn.Linear(4, 3), nn.Parameter(torch.ones(3)), failures

    def forward(self, given: Tensor) -> Tensor:
        if type(self.scale) is not nn.Parameter and self.failures:
            self.failures -= 1
            raise RuntimeError("it needs a parameter")
        return self.layer(given) * self.scale


def test_a_model_that_fails_only_where_it_is_recorded_is_trained_record_by_record() -> None:
    torch.manual_seed(0)
    model = Particular().double()
    clipper = Clipper(model, clip_norm=1.0)
    with pytest.warns(RecordByRecordWarning, match="it needs a parameter"):
        told = added(model, clipper, ROWS)
    assert_same(told, clipped_sums(gradients_of_records(model, ROWS), 1.0), 6.0)


@pytest.mark.parametrize("failures", [1, -1])
def test_an_error_that_comes_and_goes_or_stays_is_the_callers(failures: int) -> None:
    """One that comes once is told, and so is one that a record alone makes as well."""

    class Failing(Particular):
        def forward(self, given: Tensor) -> Tensor:
            if failures < 0:
                raise RuntimeError("it needs a parameter")
            return super().forward(given)

    model = Failing(failures).double()
    clipper = Clipper(model)
    with pytest.raises(RuntimeError, match="it needs a parameter"):
        added(model, clipper, ROWS)
    assert clipper.way == "per layer"

"""Record by record: the last resort, which needs no rule."""

import pytest
import torch
from lone_models import MODELS, ROWS, Unfollowed, added, plainly
from per_record import assert_same, clipped_sums, gradients_of_records, norms_of, squares
from torch import Tensor, nn

from lethe.errors import RecordByRecordWarning
from lethe.train.clipping import Clipper
from lethe.train.clipping.unfollowed import RECORD_BY_RECORD
from lethe.train.core.comparison import chance
from lethe.train.network.micro_batches import add_batch


@pytest.mark.sampled(4)
@pytest.mark.slow
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


@pytest.mark.slow
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


def test_huge_and_missing_gradients_add_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()
    batch = ROWS.clone()
    batch[2] = torch.nan
    clipper = Clipper(model, clip_norm=1e9, way=RECORD_BY_RECORD)
    told = added(model, clipper, batch)
    gradients = gradients_of_records(model, batch[[0, 1, 3, 4, 5]])
    assert_same(told, clipped_sums(gradients, 1e9), float(norms_of(gradients).sum()))


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


@pytest.mark.slow
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

"""Several rows clipped as one, against autograd of a unit's mean loss; what a unit adds is at most C, whatever its rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import norms_of, rows, small, squares
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.rules.parts import Rows
from lethe.train.clipping.units import Units, grouped
from lethe.train.clipping.units import units as units_file
from lethe.train.clipping.units.divided import Divided

# Of rows: three units of unlike sizes, out of order; the second is one row alone.
PLACES = torch.tensor([2, 0, 1, 0, 2, 2, 0, 2])
RAGGED = torch.tensor([0, 1, 2, 3, 3, 3, 3, 3])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.middle, self.out = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.middle(self.embedding(tokens)).tanh())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.attention(y, y, y, need_weights=False)[0]


class Scaled(nn.Module):
    """A parameter of its own, which no layer rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.linspace(0.5, 2.0, 4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.scale)


def _numbers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(8, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (small, lambda: rows(8)),
    "positions": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), _numbers(7, 4)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)),
        _numbers(2, 6, 6),
    ),
    "tied": (Tied, lambda: torch.randint(9, (8, 5), generator=torch.Generator().manual_seed(2))),
    "recurrent": (Recurrent, _numbers(5, 3)),
    "attention": (Attending, _numbers(5, 4)),
    "own parameter": (Scaled, _numbers(4)),
}


def _made(name: str) -> tuple[nn.Module, Tensor]:
    make, batch = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double(), batch()


def _sums(clipper: Clipper, batch: Tensor, places: Tensor, **options: Any) -> dict[nn.Parameter, Tensor]:
    with clipper.recording(records=len(batch)):
        losses = squares(clipper.model(batch))
    clipper.backward(losses, units=Units(places, int(places.max()) + 1), **options)
    return clipper.take()


def _truth(model: nn.Module, batch: Tensor, places: Tensor) -> dict[nn.Parameter, Tensor]:
    """Of each unit, the gradient of its mean loss, by autograd of a batch of its rows alone."""
    parameters = list(model.parameters())
    told = [torch.autograd.grad(squares(model(batch[places == unit])).mean(), parameters) for unit in range(int(places.max()) + 1)]
    return {parameter: torch.stack([one[place] for one in told]) for place, parameter in enumerate(parameters)}


def _close(found: dict[nn.Parameter, Tensor], truth: dict[nn.Parameter, Tensor], clip_norm: float, rel: float = 1e-10) -> None:
    weights = (clip_norm / norms_of(truth)).clamp(max=1.0)
    expected = {parameter: torch.tensordot(weights, units, dims=1) for parameter, units in truth.items()}
    error = sum(float((found[parameter].double() - expected[parameter]).square().sum()) for parameter in truth) ** 0.5
    assert error <= rel * clip_norm * len(weights)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("places", [PLACES, RAGGED], ids=["unlike", "one large"])
@pytest.mark.parametrize("held", [2**24, 0], ids=["kept", "in turn"])
def test_a_unit_is_clipped_by_the_gradient_of_its_mean_loss(name: str, places: Tensor, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All forms of gradients, held at once or formed a few rows at a time."""
    monkeypatch.setattr(grouped, "_HELD", held)
    model, batch = _made(name)
    truth = _truth(model, batch, places)
    bound = float(norms_of(truth).median())  # some are clipped, and some are not
    clipper = Clipper(model, clip_norm=bound)
    _close(_sums(clipper, batch, places), truth, bound)
    assert clipper.last_norms is not None
    torch.testing.assert_close(clipper.last_norms, norms_of(truth), rtol=1e-12, atol=1e-12)
    assert clipper.verified == "checked"


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_units_of_one_row_are_records(name: str) -> None:
    model, batch = _made(name)
    order = torch.arange(len(batch))
    bound = float(norms_of(_truth(model, batch, order)).median())
    plain = Clipper(model, clip_norm=bound)
    with plain.recording(records=len(batch)):
        losses = squares(model(batch))
    plain.backward(losses)
    found, expected = _sums(Clipper(model, clip_norm=bound), batch, order), plain.take()
    for parameter in expected:
        torch.testing.assert_close(found[parameter], expected[parameter], rtol=1e-13, atol=1e-13)


def test_clipping_row_by_row_is_another_thing() -> None:
    """What the tests above would see if rows were clipped before they are averaged."""
    model, batch = _made("linear")
    truth = _truth(model, batch, PLACES)
    bound = 0.5 * float(norms_of(truth).min())
    each = _truth(model, batch, torch.arange(len(batch)))
    factors = (bound / norms_of(each)).clamp(max=1.0)
    sizes = torch.bincount(PLACES)
    wrong = {parameter: torch.tensordot(factors / sizes[PLACES], units, dims=1) for parameter, units in each.items()}
    with pytest.raises(AssertionError):
        _close(wrong, truth, bound, rel=1e-3)


@pytest.mark.slow
@pytest.mark.sampled(24)
@pytest.mark.parametrize("form", ["side by side", "kept", "in turn"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("scale", "sign"), [(1.0, 1.0), (1e6, 1.0), (1e6, -1.0), (1e15, -1.0)])
@pytest.mark.parametrize("method", ["clip", "normalise", "automatic"])
def test_a_unit_adds_at_most_its_bound(
    form: str, dtype: torch.dtype, scale: float, sign: float, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with huge gradients, that point one way or cancel up to rounding: the unit's part of the sum is never longer than C."""
    if form != "side by side":
        monkeypatch.setattr(units_file, "OuterProducts", Units)  # so that nothing is one
    monkeypatch.setattr(grouped, "_HELD", 0 if form == "in turn" else 2**24)
    model, _ = _made("linear")
    model = model.to(dtype)
    for size, seed in ((1, 0), (2, 1), (4, 2), (64, 3), (64, 4), (64, 5)):
        batch = rows(size, seed).to(dtype)
        batch = scale * batch[:1].repeat(size, 1) * (1 + 1e-3 * batch[:, :1])
        signs = torch.tensor([1.0, sign], dtype=dtype).repeat(size)[:size]
        clipper = Clipper(model, clip_norm=0.7, method=method, verify=False)
        with clipper.recording():
            losses = model(batch) @ torch.linspace(0.5, 1.5, 3, dtype=dtype) * signs  # without a bend, so that rows cancel
        clipper.backward(losses, units=Units(torch.zeros(size, dtype=torch.int64), 1))
        length = sum(float(part.double().square().sum()) for part in clipper.take().values()) ** 0.5
        assert length <= 0.7


def test_a_unit_of_a_hundred_huge_rows_moves_the_sum_no_more_than_one_row() -> None:
    model, _ = _made("linear")
    few, many = rows(3), torch.cat([rows(3), 1e4 * rows(100, seed=3)])
    clipper = Clipper(model, clip_norm=1.0)
    base = _sums(clipper, few, torch.arange(3))
    moved = _sums(clipper, many, torch.cat([torch.arange(3), torch.full((100,), 3)]))
    gap = sum(float((moved[parameter] - base[parameter]).square().sum()) for parameter in base) ** 0.5
    assert 0.99 < gap <= 1.0 + 1e-12


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("zeroed", [True, False], ids=["zero out", "replace"])
def test_another_users_data_move_the_sum_by_its_bound_at_most(zeroed: bool) -> None:
    """The largest change over many attempts comes close to the bound, and never exceeds it: C, or 2C where data are replaced."""
    model, _ = _made("linear")
    random = torch.Generator().manual_seed(8)
    clipper = Clipper(model, clip_norm=0.6, verify=False)
    places = torch.tensor([0, 0, 1, 1, 1])
    others = rows(2)

    def summed(mine: Tensor, sign: float) -> dict[nn.Parameter, Tensor]:
        with clipper.recording():
            losses = squares(model(torch.cat([others, mine])))
        clipper.backward(losses * torch.tensor([1.0, 1.0, *[sign] * 3]), units=Units(places, 2))
        return clipper.take()

    largest, bound = 0.0, 0.6 if zeroed else 1.2
    for _ in range(40):
        mine = 30 * torch.randn(3, 4, dtype=torch.float64, generator=random)
        one, other = summed(mine, 1.0), summed(mine, 0.0 if zeroed else -1.0)  # the same direction, turned round
        gap = sum(float((one[parameter] - other[parameter]).square().sum()) for parameter in one) ** 0.5
        assert gap <= bound * (1 + 1e-12)
        largest = max(largest, gap)
    assert largest >= 0.999 * bound


def test_a_row_that_cannot_be_measured_takes_its_unit_out_and_no_other() -> None:
    model, batch = _made("linear")
    spoilt = batch.clone()
    spoilt[1] = float("nan")  # of unit 0
    clipper = Clipper(model, clip_norm=0.5, verify=False)
    found = _sums(clipper, spoilt, PLACES)
    rest = PLACES != 0
    expected = _sums(clipper, batch[rest], PLACES[rest] - 1)
    for parameter in expected:
        torch.testing.assert_close(found[parameter], expected[parameter], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_groups_of_parameters_are_clipped_unit_by_unit() -> None:
    from lethe.train.clipping import Group

    model, batch = _made("linear")
    truth = _truth(model, batch, PLACES)
    names = {parameter: name for name, parameter in model.named_parameters()}
    first = {parameter: units for parameter, units in truth.items() if names[parameter].startswith("0.")}
    second = {parameter: units for parameter, units in truth.items() if parameter not in first}
    groups = (Group(parameters=("0.*",), clip_norm=0.2), Group(parameters=("*",), clip_norm=0.3))
    found = _sums(Clipper(model, clip_norm=groups), batch, PLACES)
    _close({parameter: found[parameter] for parameter in first}, first, 0.2)
    _close({parameter: found[parameter] for parameter in second}, second, 0.3)


def test_a_model_that_mixes_rows_is_refused() -> None:
    """Of one unit too: the check keeps rows apart, which is more than is needed."""

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            return y - y.mean(0)

    with pytest.raises(InputError, match="record"):
        _sums(Clipper(Mixing().double()), rows(8), PLACES)


@pytest.mark.parametrize(
    ("places", "count", "said"),
    [
        (torch.tensor([0.0, 1.0]), 2, "float32"),
        (torch.tensor([[0, 1]]), 2, "shape"),
        ([0, 1], 2, "list"),
        (torch.tensor([0, 2]), 2, "there are 2"),
        (torch.tensor([-1, 0]), 2, "-1 to 0"),
    ],
)
def test_places_that_are_none_are_refused(places: Any, count: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Units(places, count)


def test_other_rows_and_padding_are_refused() -> None:
    clipper = Clipper(small())
    with clipper.recording():
        losses = squares(clipper.model(rows(4)))
    with pytest.raises(InputError, match="got 4; the units are of 3"):
        clipper.backward(losses, units=Units(torch.tensor([0, 0, 1]), 2))
    with clipper.recording():
        losses = squares(clipper.model(rows(4)))
    with pytest.raises(InputError, match="counted: given together"):
        clipper.backward(losses, torch.ones(4, dtype=torch.bool), Units(torch.tensor([0, 0, 1, 1]), 2))


@pytest.mark.parametrize("sizes", [[4, 1, 3], [1, 1, 1], [3, 2, 4], [1000, *[1] * 99], [7, 1, 2, 3, 64, 5, 4, 16, 15]])
def test_rows_are_laid_side_by_side_among_units_of_about_one_size(sizes: list[int]) -> None:
    """Every row once, in its order; and a large user among many small ones makes no table as long as all of these."""
    places = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[torch.randperm(sum(sizes))]
    seen = torch.full((len(places),), -1)
    length = 0
    for units, table in Units(places, len(sizes)).tables():
        length += table.numel()
        for unit, mine in zip(units.tolist(), table, strict=True):
            rows_of_unit = mine[mine >= 0]
            assert rows_of_unit.tolist() == (places == unit).nonzero()[:, 0].tolist()
            seen[rows_of_unit] = unit
    assert torch.equal(seen, places)
    assert length <= 2 * sum(sizes)


def test_units_in_several_tables_are_those_of_one() -> None:
    """What is divided tells of each unit what the unit alone tells."""
    part = Divided([(torch.tensor([2, 0]), Rows(torch.tensor([[3.0], [1.0]]))), (torch.tensor([1]), Rows(torch.tensor([[2.0]])))], 3)
    assert part.per_record().tolist() == [[1.0], [2.0], [3.0]]
    assert part.squared_norms().tolist() == [1.0, 4.0, 9.0]
    assert part.lengths().tolist() == [1.0, 2.0, 3.0]
    assert part.weighted_sum(torch.tensor([1.0, 10.0, 100.0])).tolist() == [321.0]
    assert part.formed(torch.tensor([2, 1]), torch.float64).tolist() == [[3.0], [2.0]]
    assert part.slack().tolist() == [0.0, 0.0, 0.0]


def test_what_units_add_is_formed_unit_by_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over the rows of all units goes through more additions than `sum_error` counts: 2000 here, of 2 units."""
    monkeypatch.setattr(grouped, "_HELD", 0)
    rest = torch.rand(2000, 1, generator=torch.Generator().manual_seed(6)).expand(2000, 3)  # one way: units stay in the common sum
    part = grouped.Grouped(Rows(rest), torch.arange(2000) % 2, torch.tensor([1000, 1000]), 3)
    units = part.formed(torch.tensor([0, 1]), torch.float32)
    weights = torch.tensor([0.5, 0.25], dtype=torch.float64)
    assert torch.equal(part.weighted_sum(weights), units[0].double() * 0.5 + units[1].double() * 0.25)
    assert torch.equal(part.weighted_sum(torch.tensor([0.0, 1.0], dtype=torch.float64)), units[1].double())

"""No record moves the sums by more than C, in exact arithmetic on what was computed: records made to be rounded badly."""

import math

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lethe.train.clip import float64_sums
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.float64_sums import CHAIN
from lethe.train.clip.groups import METHODS
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import CANCELLED
from lethe.train.clip.rules import convolution
from lethe.train.clip.sum_error import sum_error

RECORD, RECORDS, WIDTH = 4, 9, 6
SEEDS = st.integers(0, 99)
METHOD = st.sampled_from(sorted(METHODS))


class Cotangents(nn.Module):
    """A layer between inputs and gradients of its output that are given: the record's gradient is what the test wants."""

    def __init__(self, kind: str, width: int = WIDTH) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        if kind == "embedding":
            self.layer: nn.Module = nn.Embedding(3, width)
        elif kind.startswith("conv"):
            self.layer = nn.Conv1d(width, width, int(kind[4:]), bias=False)
        else:
            self.layer = nn.Linear(width, width, bias=False)
        if kind == "tied":
            self.other = nn.Linear(width, width, bias=False)
            self.other.weight = self.layer.weight  # pyright: ignore[reportAttributeAccessIssue]
        if kind == "head":
            self.other = nn.Embedding(width, width)
            self.other.weight = self.layer.weight  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, given: Tensor) -> Tensor:
        inputs, gradients = given[..., : self.width], given[..., self.width :]
        if self.kind == "embedding":
            return (self.layer(torch.ones(inputs.shape[:2], dtype=torch.long)) * gradients).sum((1, 2))
        if self.kind.startswith("conv"):
            outputs = self.layer(inputs.mT).mT
            return (outputs * gradients[:, : outputs.shape[1]]).sum((1, 2))
        if self.kind == "tied":
            return (self.layer(inputs[:, 0]) * gradients[:, 0] + self.other(inputs[:, 1]) * gradients[:, 1]).sum(1)
        if self.kind == "head":
            token = torch.zeros(len(given), dtype=torch.long)
            return (self.layer(inputs[:, 0]) * gradients[:, 0]).sum(1) + (self.other(token) * gradients[:, 1]).sum(1)
        return (self.layer(inputs) * gradients).sum((1, 2))


def added(model: nn.Module, batch: Tensor, clip_norm: float = 1.0, method: str = "clip", memory: int | None = None) -> Tensor:
    clipper = Clipper(model, model, clip_norm, method=method, isolation="declared", gradient_memory=memory)
    clipper.add(batch)
    assert clipper.ways == {"fast"}
    return torch.cat([tensor.flatten() for tensor in clipper.take().values()])


def change(model: nn.Module, batch: Tensor, clip_norm: float = 1.0, method: str = "clip", memory: int | None = None) -> float:
    others = [row for row in range(len(batch)) if row != RECORD]
    with_it, without = (added(model, rows, clip_norm, method, memory) for rows in (batch, batch[others]))
    return float((with_it - without).norm()) / clip_norm


def cancelling(kind: str, positions: int, power: float, rest: float) -> Tensor:
    """A batch with a record of two huge terms that cancel, and of small ones that do not."""
    batch, large = torch.randn(RECORDS, positions, 2 * WIDTH), torch.randn(2 * WIDTH)
    batch[RECORD] = 0
    for place, sign in ((0, 1.0), (positions // 2, -1.0)):
        batch[RECORD, place] = large * 10**power
        batch[RECORD, place, WIDTH:] *= sign
    if kind == "head":  # the first row of the outer product against the row looked up
        batch[RECORD, 0, WIDTH:] = 0
        batch[RECORD, 0, WIDTH] = 10**power
        batch[RECORD, 1, WIDTH:] = -(batch[RECORD, 0, :WIDTH] * 10**power)
    batch[RECORD, -1 if kind[:4] != "conv" else positions - int(kind[4:])] += torch.randn(2 * WIDTH) * 10**rest
    return batch


def never_formed(monkeypatch: pytest.MonkeyPatch, *, sums_too: bool = False) -> None:
    """As in layers too large for it."""
    monkeypatch.setattr(outer_products, "forming", lambda *_: (False, False))
    monkeypatch.setattr(convolution, "forming", lambda *_: (False, False))
    monkeypatch.setattr(outer_products, "FORMED", 0)
    if sums_too:
        monkeypatch.setattr(outer_products, "_FEW", 10**9)


CASES = {"linear": (2, 3, 8, 30), "tied": (2,), "head": (2,), "embedding": (4,), "conv1": (6, 60), "conv3": (12, 40)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize(("kind", "positions"), [(kind, length) for kind, lengths in CASES.items() for length in lengths])
@settings(max_examples=examples(40))
@given(power=st.floats(0, 14), rest=st.floats(-6, 1), clip=st.floats(-4, 3), method=METHOD, seed=SEEDS)
def test_positions_that_cancel_move_the_sums_by_no_more_than_the_bound(
    kind: str, positions: int, formed: bool, power: float, rest: float, clip: float, method: str, seed: int
) -> None:
    torch.manual_seed(seed)
    batch = cancelling(kind, positions, power, rest)
    with pytest.MonkeyPatch.context() as patched:
        if not formed:
            never_formed(patched)
        # The gradients of eight others, of norm C each, are rounded in two ways.
        assert change(Cotangents(kind), batch, 10**clip, method, None if formed else 0) <= 1 + 2e-6


EQUAL = [("linear", 1), ("linear", 8), ("linear", 48), ("linear", 384), ("linear", 768), ("conv3", 6), ("conv3", 386), ("conv3", 2050)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize("width", [WIDTH, 64])
@pytest.mark.parametrize(("kind", "positions"), EQUAL)
def test_equal_positions_that_all_round_one_way_stay_below_the_bound(
    kind: str, positions: int, width: int, formed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not formed:
        never_formed(monkeypatch)
    for size in torch.linspace(0.5, 1.5, 21).tolist():
        batch = torch.full((1, positions, 2 * width), size)
        batch[..., width:] = 1.0
        assert float(added(Cotangents(kind, width), batch, 0.1, "normalise", 0).norm()) <= 0.1


def test_products_count_as_longer_by_every_rounding_on_their_way() -> None:
    """Which shows in no sum: it is what is proved of any order of the additions."""
    torch.manual_seed(0)
    part = OuterProducts(torch.randn(3, 4, 40), torch.randn(3, 4, 50), Memory(0))
    longer = (part.squares() - part.products()) / part.lengths().square()
    torch.testing.assert_close(longer, torch.full((3,), 2 * (40 + 50 + 2 * 4) * 2.0**-53, dtype=torch.float64), rtol=0.05, atol=0)


def test_what_is_formed_for_the_sum_is_made_no_longer_than_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of terms that cancel to what rounding leaves of them: measured in float64, and formed in float32."""
    never_formed(monkeypatch)
    torch.manual_seed(0)
    batch = cancelling("linear", 60, 4.0, -3.0)
    batch[RECORD, 1] = batch[RECORD, 0] * 0.37
    batch[RECORD, 31] = batch[RECORD, 1] * torch.tensor([1.0] * WIDTH + [-1.0] * WIDTH)
    batch = batch[RECORD : RECORD + 1]
    assert 0.999 < float(added(Cotangents("linear"), batch, 1e-9, memory=0).norm()) / 1e-9 <= 1
    monkeypatch.setattr(outer_products, "no_longer", lambda weights, measured, formed: float64_sums.weighed(weights, formed))
    assert float(added(Cotangents("linear"), batch, 1e-9, memory=0).norm()) / 1e-9 > 1.001


@pytest.mark.sampled(3)
@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize("kind", ["linear", "tied", "head", "embedding", "conv1", "conv3"])
@settings(max_examples=examples(40))
@given(
    inputs=st.floats(-44, 37),
    gradients=st.floats(-44, 37),
    positions=st.sampled_from([3, 4, 60]),
    clip=st.floats(-5, 3),
    method=METHOD,
    width=st.sampled_from([3, 30]),
)
def test_factors_of_any_size_stay_within_the_bound(
    kind: str, formed: bool, inputs: float, gradients: float, positions: int, clip: float, method: str, width: int
) -> None:
    torch.manual_seed(0)
    batch = torch.randn(RECORDS, positions, 2 * width)
    for columns, power in ((slice(0, width), inputs), (slice(width, None), gradients)):
        batch[RECORD, :, columns] = (batch[RECORD, :, columns].double() * 10**power).clamp(-3e38, 3e38).float()
    with pytest.MonkeyPatch.context() as patched:
        if not formed:
            never_formed(patched)
        assert change(Cotangents(kind, width), batch, 10**clip, method, None if formed else 0) <= 1 + 2e-6


@pytest.mark.parametrize("positions", [2, 30])
def test_what_no_float32_holds_adds_nothing_however_it_is_measured(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are measured in float64, which holds far more than what is formed of them for the sum."""
    torch.manual_seed(0)
    for formed in (True, False):
        if not formed:
            never_formed(monkeypatch)
        batch = torch.randn(RECORDS, positions, 2 * WIDTH)
        batch[RECORD] = 1e25 * torch.randn(positions, 2 * WIDTH)
        model = Cotangents("linear")
        assert change(model, batch) <= 1 + 2e-6
        nn.init.zeros_(model.layer.weight)  # pyright: ignore[reportArgumentType] - so that its loss is a number
        assert change(model, batch) <= 1 + 2e-6


@pytest.mark.parametrize("method", sorted(METHODS))
def test_squares_that_vanish_hide_no_norm(method: str) -> None:
    layer, batch = nn.Linear(10000, 1, bias=False), torch.full((1, 10000), 2.6e-23)
    clipper = Clipper(layer, lambda rows: layer(rows)[:, 0] * 1e19, 1e-4, method=method, isolation="declared")
    clipper.add(batch)
    assert float(clipper.take()[next(layer.parameters())].norm()) <= 1e-4


@pytest.mark.parametrize("positions", [1, 2, 10, 64])
@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize("method", ["clip", "normalise"])
def test_ordinary_records_are_shrunk_by_less_than_a_hundred_thousandth(
    positions: int, method: str, formed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not formed:
        never_formed(monkeypatch)
    torch.manual_seed(0)
    batch = torch.randn(RECORDS, positions, 2 * 64)
    assert 1 - 1e-5 <= change(Cotangents("linear", 64), batch, 0.1, method) <= 1


@pytest.mark.parametrize("kind", ["linear", "tied", "head", "conv1"])
@pytest.mark.parametrize("power", [2.0, 4.0, 6.0, 7.5, 8.0, 8.5, 9.0])
def test_doubles_that_cancel_beyond_products_of_positions_stay_within_the_bound(
    kind: str, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A squared norm from products of positions is right to some eps of the squared lengths: of what is left of 1e8, nothing."""
    never_formed(monkeypatch)
    wide, half = 64, 1 if kind in ("tied", "head") else 4
    for seed in range(12):
        torch.manual_seed(seed)
        x, g = (torch.randn(1, half, wide, dtype=torch.float64) for _ in range(2))
        left = -g + 10**-power * torch.randn_like(g)
        batch = torch.cat([torch.cat([x, x], 1), torch.cat([g, left], 1)], 2)
        batch[..., wide:] *= 10 / torch.einsum("btp,btd->pd", batch[..., wide:], batch[..., :wide]).norm()
        if kind == "head":  # the row looked up against the first of the outer product
            batch[:, 0, wide:], batch[:, 0, wide] = 0, 1
            batch[:, 1, wide:] = -batch[:, 0, :wide] * (1 + 10**-power)
        assert float(added(Cotangents(kind, wide).double(), batch, memory=0).norm()) <= 1 + 1e-12


NUMBERS = 16  # of trained numbers, which all have the same gradient


def targets_of(records: int, part: int, sign: float) -> Tensor:
    """Each record's gradient, shorter than 1 over all numbers, in float32; after the first ones `part` add half a unit of rounding."""
    top = (1 - 1e-5) / math.sqrt(NUMBERS)
    before = max(part, int(0.6 * records) // part * part) if part < records else int(0.6 * records)
    power = 2.0 ** math.floor(math.log2(0.9 * before * top))
    targets = torch.full((records,), 0.51 * 2.0**-23 * power / part)
    targets[:before] = power / before
    targets[0] = sign * top
    return targets


class Shift(nn.Module):
    """A layer of which only the bias is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, NUMBERS)
        self.layer.weight.requires_grad_(False)

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given)


KINDS = {
    "product": (lambda: nn.Linear(8, 2, bias=False), torch.ones(8)),
    "positions": (lambda: nn.Linear(8, 2, bias=False), torch.full((32, 8), 1 / 32)),
    "convolution": (lambda: nn.Conv1d(4, 2, 2, bias=False), torch.full((4, 3), 1 / 2)),
    "shift": (Shift, torch.zeros(1)),
    "table": (lambda: nn.Embedding(1, NUMBERS), torch.zeros((), dtype=torch.int64)),
}
"""Models of 16 trained numbers, and an input for which each one's gradient is the record's target."""


def summed(kind: str, targets: Tensor, part: int, **options: object) -> Tensor:
    made, record = KINDS[kind]
    model = made()
    clipper = Clipper(model, lambda batch: model(batch[0]).flatten(1).sum(1) * batch[1], 1.0, **options)  # pyright: ignore
    for some in targets.split(part):
        clipper.add((record.expand(len(some), *record.shape), some))
    return torch.cat([tensor.flatten() for tensor in clipper.take().values()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [8, 128, 8192])
def test_one_record_decides_on_no_rounding_of_the_others(kind: str, part: int, memory: int | None) -> None:
    """The others bring the sum to a power of two; in float32 sums those after it would be lost or doubled: up to 2.65 C."""
    ends = [summed(kind, targets_of(8192, part, sign), part, isolation="declared", gradient_memory=memory) for sign in (1.0, -1.0)]
    moved = float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2
    assert 0.99 < moved <= 1 + 1e-9
    if (part, memory) == (128, None):  # nor where records are computed alone
        ends = [summed("product", targets_of(1024, 8, sign), part, isolation="enforced") for sign in (1.0, -1.0)]
        assert 0.99 < float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2 <= 1 + 1e-9


@pytest.mark.parametrize("records", [2, 100, 5000])
def test_no_order_of_additions_is_off_by_more(records: int) -> None:
    """Beside exact sums: rows of equal numbers that all round one way, added one after another."""
    row = 1.0 + 2.0**-52
    total = 0.0
    for _ in range(records):
        total += row
    assert 2 * abs(total - math.fsum([row] * records)) <= sum_error(records, records, processes=1)


@pytest.mark.parametrize("positions", [2, 8])
def test_records_that_cancel_put_the_sum_off_by_no_more_than_is_counted(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many terms of as long lengths as are let through, which all round one way, in one product."""
    monkeypatch.setattr(outer_products, "forming", lambda *_: (False, False))
    records = 3 * CHAIN
    x, g = torch.full((records, positions, 1), 1.0), torch.full((records, positions, 1), 1.0 / 3.0)
    g[:, positions // 2 :] *= -1 + 1 / CANCELLED
    part = OuterProducts(x, g, Memory(0))
    weights = 1 / part.squares().sqrt()
    assert float((part.lengths() * weights).max()) <= CANCELLED * (1 + 1e-9)
    found = float(part.weighted(weights))
    exact = math.fsum((weights[:, None].double() * g[:, :, 0].double()).flatten().tolist())
    assert 2 * abs(found - exact) <= sum_error(records, records, processes=1)

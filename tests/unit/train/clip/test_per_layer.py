"""Per-layer clipping: each layer is clipped and added as its gradient arrives in the backward pass, and nothing of it is kept."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import Group
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients
from lethe.train.clip.rules import registry
from lethe.train.clip.rules.registry import per_layer
from lethe.train.clip.rules.rule import Rule
from lethe.train.clip.rules.simple_layers import linear
from lethe.train.clip.sums import Arriving, ClippedSums

F64 = torch.float64
RECORDS, CLIP, UNITS = 6, 0.3, [[0, 3], [1], [2, 4, 5]]


class Tied(nn.Module):
    """A small transformer whose head is its table; nobody uses what one layer gives, nor one call of another."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.table = nn.Linear(8, 9), nn.Embedding(9, 8)
        self.table.weight = self.head.weight
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.unused = nn.Linear(8, 8)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.block(self.table((3 * rows).long().abs() % 9))
        self.block.linear1(self.unused(hidden))
        return self.head(hidden)


class Checkpointed(nn.Module):
    """Layers that are computed again in the backward pass; the second twice, each time in a checkpoint of its own."""

    def __init__(self, *, reentrant: bool, twice: bool) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.reentrant, self.twice = reentrant, twice

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.first(rows)
        for _ in range(1 + self.twice):
            hidden = checkpoint(lambda given: torch.tanh(self.second(given)), hidden, use_reentrant=self.reentrant)
        return self.last(hidden)  # pyright: ignore[reportArgumentType]


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "MLP": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3)), 3),
    "CNN": (lambda: nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(24, 3)), 3),
    "tied transformer": (Tied, 7),
    "checkpoints": (lambda: Checkpointed(reentrant=False, twice=True), 3),
    "reentrant checkpoint": (lambda: Checkpointed(reentrant=True, twice=False), 3),
}


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]().to(F64)


def batch_of(records: int = RECORDS, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(records, 8, generator=torch.Generator().manual_seed(1), dtype=dtype)


def losses_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda rows: model(rows).square().flatten(1).sum(1)


def layers(model: nn.Module) -> list[list[str]]:
    """The names of the trained parameters, layer by layer, by other means than the library's."""
    found: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(name.rpartition(".")[0], []).append(name)
        assert parameter.requires_grad
    if isinstance(model, Tied):  # attention answers for the layer within it
        found["block.self_attn"] += found.pop("block.self_attn.out_proj")
    return list(found.values())


def truth(model: nn.Module, batch: Tensor, units: Any = None, own: list[list[str]] | None = None, clip: float = CLIP) -> dict[str, Tensor]:
    """The sums of records, or units, that are taken alone, each layer clipped to C over the root of their number."""
    own, named = own or layers(model), dict(model.named_parameters())
    sums = {name: torch.zeros_like(named[name]) for names in own for name in names}
    for unit in units or [[record] for record in range(len(batch))]:
        loss = torch.stack([losses_of(model)(batch[record : record + 1]).sum() for record in unit]).mean()
        model.zero_grad()
        loss.backward()
        gradient = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
        model.zero_grad()
        for names in own:
            if present := [name for name in names if name in gradient]:
                norm = torch.stack([gradient[name].norm() for name in present]).norm()
                for name in present:
                    sums[name] += gradient[name] * (clip / len(own) ** 0.5 / norm).clamp(max=1)
    return sums


def added(model: nn.Module, *batches: Tensor, isolation: str = "declared", memory: int | None = None, **given: Any) -> dict[str, Tensor]:
    clipper = Clipper(model, losses_of(model), per_layer(model, CLIP), isolation=isolation, gradient_memory=memory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        for batch in batches:
            clipper.add(batch, **given)
    return by_name(model, clipper)


def by_name(model: nn.Module, clipper: Clipper, held: tuple[str, ...] = ("",)) -> dict[str, Tensor]:
    """The sums of some parameters."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[parameter]: total for parameter, total in clipper.take().items() if names[parameter].startswith(held)}


def near(sums: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    largest = max(float(total.abs().max()) for total in other.values())
    torch.testing.assert_close(sums, {name: other[name] for name in sums}, rtol=1e-9, atol=1e-9 * largest)


@pytest.fixture
def never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is added at its end."""
    monkeypatch.setattr(ClippedSums, "add", lambda *_, **__: pytest.fail("kept until the end"))


@pytest.mark.usefixtures("never_kept")
@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("name", MODELS)
def test_layers_are_clipped_by_themselves_as_their_gradients_arrive(name: str, memory: int | None) -> None:
    model, batch = built(name), batch_of()
    assert len(per_layer(model, CLIP)) == MODELS[name][1]
    expected = truth(model, batch)
    near(added(model, batch, memory=memory), expected)
    near(added(model, batch[:1], batch[1:4], batch[4:], memory=memory), expected)  # micro-batches
    counted = torch.tensor([True, True, True, False, False, True])
    near(added(model, batch, counted=counted), truth(model, batch[counted]))


@pytest.mark.parametrize("name", MODELS)
def test_batches_that_are_kept_give_the_same(name: str) -> None:
    """Those that are compared, users, and records that are computed alone."""
    model, batch = built(name), batch_of()
    expected = truth(model, batch)
    near(added(model, batch, isolation="checked"), expected)
    near(added(model, batch, isolation="enforced"), expected)
    near(added(model, batch, units=UNITS), truth(model, batch, UNITS))


def test_ordinary_batches_after_the_check_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = built("MLP"), batch_of()
    clipper = Clipper(model, losses_of(model), per_layer(model, CLIP))
    kept, sums = list[int](), list[Tensor]()
    ordinary, arrives = ClippedSums.add, ClippedSums.add_arrived
    monkeypatch.setattr(ClippedSums, "add", lambda *given: (kept.append(1), ordinary(*given)))
    monkeypatch.setattr(ClippedSums, "add_arrived", lambda *given: (kept.append(0), arrives(*given))[1])
    for _ in range(3):
        clipper.add(batch)
        sums.append(torch.cat([total.flatten() for total in clipper.take().values()]))
    assert kept == [1, 1, 0]
    assert (clipper.measured, clipper.contributed) == (True, True)
    torch.testing.assert_close(sums[2], sums[0], rtol=1e-12, atol=1e-15)
    other = Clipper(model, losses_of(model), per_layer(model, CLIP), isolation="declared")
    other.add(batch, counted=torch.zeros(RECORDS, dtype=torch.bool))
    assert (kept[3:], other.measured) == ([0], False)


@pytest.mark.usefixtures("never_kept")
def test_groups_of_several_layers_with_norms_of_their_own_arrive_as_well() -> None:
    model, batch = built("MLP"), batch_of()
    groups = [Group(parameters=("2.*", "4.*"), clip_norm=0.1), Group(parameters=("*",), clip_norm=0.2)]
    clipper = Clipper(model, losses_of(model), groups, isolation="declared")
    clipper.add(batch)
    for held, group in ((("2", "4"), groups[0]), (("0",), groups[1])):
        expected = truth(model, batch, own=[[name for name, _ in model.named_parameters() if name[0] in held]], clip=group.clip_norm)
        near(by_name(model, clipper, held), expected)
        clipper.add(batch)


@pytest.mark.usefixtures("never_kept")
@pytest.mark.parametrize("name", ["MLP"])
def test_nothing_is_kept_of_a_layer_that_was_added(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, besides, add = built(name), list[int](), Arriving.add

    def parts_alive() -> int:
        return sum(isinstance(one, ParameterGradients) for one in gc.get_objects())

    def adding(arriving: Arriving, place: int, parts: dict[nn.Parameter, ParameterGradients]) -> None:
        besides.append(parts_alive() - len(parts) - before)
        add(arriving, place, parts)

    monkeypatch.setattr(Arriving, "add", adding)
    gc.collect()
    before = parts_alive()
    near(added(model, batch_of()), truth(model, batch_of()))
    assert besides == [0] * MODELS[name][1]


@pytest.mark.usefixtures("never_kept")
@pytest.mark.parametrize("scale", [1.0, 1e12])
@pytest.mark.parametrize("name", ["MLP", "CNN", "tied transformer"])
def test_a_record_moves_the_sum_by_no_more_than_the_norm(name: str, scale: float) -> None:
    model = built(name).float()
    groups = per_layer(model, CLIP)
    clipper = Clipper(model, lambda rows: losses_of(model)(rows) * scale, groups, isolation="declared")
    batch, names = batch_of(dtype=torch.float32), {parameter: name for name, parameter in model.named_parameters()}
    for record in range(RECORDS):
        sums = []
        for counted in (torch.ones(RECORDS, dtype=torch.bool), torch.arange(RECORDS) != record):
            clipper.add(batch, counted=counted)
            sums.append(clipper.take())
        moved = {parameter: float((sums[0][parameter] - sums[1][parameter]).norm()) for parameter in names}
        for group in groups:
            of_layer = math.hypot(*(moved[parameter] for parameter in names if group.holds(names[parameter])))
            assert of_layer <= group.clip_norm * (1 + 1e-12)
            if scale == 1e12 and "unused" not in group.parameters[0]:
                assert of_layer == pytest.approx(group.clip_norm, rel=1e-3)
        assert math.hypot(*moved.values()) <= CLIP * (1 + 1e-12)


def test_a_group_that_seemed_complete_is_not_clipped_twice() -> None:
    """One layer in two checkpoints that are computed again one after the other: nobody knows of the second before it comes."""
    torch.manual_seed(0)
    model, batch = Checkpointed(reentrant=True, twice=True).to(F64), batch_of()
    clipper = Clipper(model, losses_of(model), per_layer(model, CLIP), isolation="declared")
    for _ in range(2):
        clipper.add(batch)
        near(by_name(model, clipper), truth(model, batch))
    assert clipper.ways == {"fast"}
    assert clipper._keeps  # no later batch is tried twice


@pytest.mark.parametrize("fault", [1.0, 0.99, 1.01])
def test_a_rule_that_is_off_by_one_percent_is_found(fault: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches that are compared are kept, so that the records' gradients are there."""
    rule = Rule(lambda call: ((name, MaterialisedGradients(part.rows() * fault)) for name, part in linear(call)))
    monkeypatch.setitem(registry.RULES, nn.Linear, rule)
    model, batch = built("CNN"), batch_of()
    clipper = Clipper(model, losses_of(model), per_layer(model, CLIP))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            clipper.add(batch)
    assert [one.category for one in seen] == ([] if fault == 1.0 else [RecordByRecordWarning])
    near(by_name(model, clipper), {name: 3 * total for name, total in truth(model, batch).items()})


@pytest.mark.usefixtures("never_kept")
@pytest.mark.parametrize("piece", [0, 300])
@pytest.mark.parametrize("tied", [False, True])
def test_sequences_in_single_precision_are_formed_once(piece: int, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record's gradient is measured where it is formed for the sum, some records at a time."""
    for part in (OuterProducts, outer_products.Several):
        monkeypatch.setattr(part, "squares", lambda _: pytest.fail("measured before"))
    monkeypatch.setattr(outer_products, "FORMED", piece)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    if tied:
        model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 30, bias=False))
        model[3].weight = model[0].weight
    batch = torch.randint(30, (RECORDS, 40)) if tied else torch.randn(RECORDS, 40, 8)
    expected = truth(model.double(), batch if tied else batch.double())
    clipper = Clipper(model.float(), losses_of(model), per_layer(model, CLIP), isolation="declared")
    clipper.add(batch)
    sums, own = by_name(model, clipper), layers(model)
    for name, total in sums.items():
        assert float((total - expected[name]).norm()) <= 1e-5 * float(expected[name].norm())
    for record in range(RECORDS):
        clipper.add(batch, counted=torch.arange(RECORDS) != record)
        moved = {name: float((sums[name] - total).norm()) for name, total in by_name(model, clipper).items()}
        for layer in own:
            of_layer = math.hypot(*(moved[name] for name in layer))
            assert 0.99 * CLIP / len(own) ** 0.5 <= of_layer <= CLIP / len(own) ** 0.5 * (1 + 1e-12)

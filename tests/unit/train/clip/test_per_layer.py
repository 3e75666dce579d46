"""Per-layer clipping: each layer is clipped and added as its gradient arrives in the backward pass, and nothing of it is kept."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import layer_cases
import pytest
import torch
from layer_cases import F64, clipped, flat, near, truth
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import Group
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules import registry
from lethe.train.clip.rules.registry import per_layer
from lethe.train.clip.rules.rule import Rule
from lethe.train.clip.rules.simple_layers import linear
from lethe.train.clip.sums import ClippedSums

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


def masks(model: nn.Module) -> dict[str, Tensor]:
    """Which of all numbers are of a layer, by other means than the library's; attention answers for the layer within it."""
    layers = [
        name.rpartition(".")[0].removesuffix(".out_proj") for name, parameter in model.named_parameters() for _ in range(parameter.numel())
    ]
    return {layer: torch.tensor([one == layer for one in layers]) for layer in dict.fromkeys(layers)}


def expected(model: nn.Module, batch: Tensor, units: Any = None, groups: dict[tuple[str, ...], float] | None = None) -> Tensor:
    """The sum of records, or units, that are taken alone; each layer clipped to C over the root of their number, or groups of layers."""
    of, rows = masks(model), truth(model, batch, units, losses_of(model))
    groups = groups or {(layer,): CLIP / len(of) ** 0.5 for layer in of}
    return torch.stack([clipped(rows * torch.stack([of[layer] for layer in group]).any(0), norm) for group, norm in groups.items()]).sum(0)


def clipper_of(model: nn.Module, groups: Any = None, scale: float = 1.0, **options: Any) -> Clipper:
    losses = losses_of(model)
    return Clipper(model, lambda rows: losses(rows) * scale, groups or per_layer(model, CLIP), **{"isolation": "declared", **options})


def added(model: nn.Module, *batches: Tensor, clipper: Clipper | None = None, **options: Any) -> Tensor:
    given = {name: options.pop(name) for name in ("units", "counted") if name in options}
    return layer_cases.added(model, *batches, clipper=clipper or clipper_of(model, **options), **given)


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
    near(added(model, batch, gradient_memory=memory), expected(model, batch))
    near(added(model, batch[:1], batch[1:4], batch[4:], gradient_memory=memory), expected(model, batch))  # micro-batches
    counted = torch.tensor([True, True, True, False, False, True])
    near(added(model, batch, counted=counted), expected(model, batch[counted]))
    if name == "MLP":  # groups of several layers arrive as well
        groups = [Group(parameters=("2.*", "4.*"), clip_norm=0.1), Group(parameters=("*",), clip_norm=0.2)]
        near(added(model, batch, groups=groups), expected(model, batch, groups={("2", "4"): 0.1, ("0",): 0.2}))


@pytest.mark.parametrize("name", MODELS)
def test_batches_that_are_kept_give_the_same(name: str) -> None:
    """Those that are compared, users, and records that are computed alone."""
    model, batch = built(name), batch_of()
    for isolation in ("checked", "enforced"):
        near(added(model, batch, isolation=isolation), expected(model, batch))
    near(added(model, batch, units=UNITS), expected(model, batch, UNITS))


def moves(model: nn.Module, clipper: Clipper, batch: Tensor) -> Iterator[tuple[str, float]]:
    """How far each record moves the sum of each layer."""
    whole, of = added(model, batch, clipper=clipper), masks(model)
    for record in range(RECORDS):
        moved = whole - added(model, batch, clipper=clipper, counted=torch.arange(RECORDS) != record)
        assert float(moved.norm()) <= CLIP * (1 + 1e-12)
        yield from ((layer, float(moved[held].norm())) for layer, held in of.items())


@pytest.mark.usefixtures("never_kept")
@pytest.mark.parametrize("scale", [1.0, 1e12])
@pytest.mark.parametrize("name", ["MLP", "CNN", "tied transformer"])
def test_a_record_moves_the_sum_by_no_more_than_the_norm(name: str, scale: float) -> None:
    model = built(name).float()
    norm = CLIP / len(masks(model)) ** 0.5
    for layer, moved in moves(model, clipper_of(model, scale=scale), batch_of(dtype=torch.float32)):
        assert moved <= norm * (1 + 1e-12)
        assert scale == 1.0 or layer == "unused" or moved == pytest.approx(norm, rel=1e-3)


def test_a_group_that_seemed_complete_is_not_clipped_twice() -> None:
    """One layer in two checkpoints that are computed again one after the other: nobody knows of the second before it comes."""
    torch.manual_seed(0)
    model, batch = Checkpointed(reentrant=True, twice=True).to(F64), batch_of()
    clipper = clipper_of(model)
    for _ in range(2):
        near(added(model, batch, clipper=clipper), expected(model, batch))
    assert clipper.ways == {"fast"}
    assert clipper._keeps  # no later batch is tried twice


@pytest.mark.parametrize("fault", [1.0, 0.99, 1.01])
def test_a_rule_that_is_off_by_one_percent_is_found(fault: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches that are compared are kept, so that the records' gradients are there."""
    rule = Rule(lambda call: ((name, MaterialisedGradients(part.rows() * fault)) for name, part in linear(call)))
    monkeypatch.setitem(registry.RULES, nn.Linear, rule)
    model, batch = built("CNN"), batch_of()
    clipper = clipper_of(model, isolation="checked")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            clipper.add(batch)
    assert [one.category for one in seen] == ([] if fault == 1.0 else [RecordByRecordWarning])
    near(flat(clipper.take()), 3 * expected(model, batch))


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
    exact = expected(model.double(), batch if tied else batch.double())
    clipper = clipper_of(model.float())
    sums, of = added(model, batch, clipper=clipper), masks(model)
    for held in of.values():
        assert float((sums - exact)[held].norm()) <= 1e-5 * float(exact[held].norm())
    for _, moved in moves(model, clipper, batch):
        assert 0.99 * CLIP / len(of) ** 0.5 <= moved <= CLIP / len(of) ** 0.5 * (1 + 1e-12)

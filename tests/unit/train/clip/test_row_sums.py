"""Large tables are summed by the rows that are looked up: as records alone, and with what each contributes to which row."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.parts import part
from lethe.train.clip.parts.row_sums import added, contributions, of_rows
from lethe.train.clip.parts.selection import SparseSelection

ROWS, WIDTH, RECORDS, NORM = 400, 3, 5, 0.3
F64 = torch.float64


class Twice(nn.Module):
    """A table that is looked up in two places, as of users and of what they bought, with a padding row."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(ROWS, WIDTH, padding_idx=0, dtype=F64), nn.Linear(2 * WIDTH, 1, dtype=F64)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 4), of which the first two are summed."""
        first, second = self.table(tokens[:, :2]).sum(1), self.table(tokens[:, 2:]).tanh().sum(1)
        return self.head(torch.cat([first, second], 1))[:, 0]


class Bags(nn.Module):
    """A bag of each record's tokens."""

    def __init__(self, mode: str, weighted: bool = False) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, WIDTH, mode=mode, padding_idx=0, dtype=F64)
        self.head, self.weighted = nn.Linear(WIDTH, 1, dtype=F64), weighted

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 4)."""
        weights = {"per_sample_weights": (tokens.double() / ROWS + 0.5)} if self.weighted else {}
        return self.head(self.table(tokens, **weights).tanh())[:, 0]


class Tied(nn.Module):
    """The table is the output layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(ROWS, WIDTH, dtype=F64), nn.Linear(WIDTH, ROWS, bias=False, dtype=F64)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 4)."""
        return self.head(self.table(tokens).sum(1)).logsumexp(1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "twice": Twice,
    "sum": lambda: Bags("sum"),
    "mean": lambda: Bags("mean"),
    "max": lambda: Bags("max"),
    "weighted": lambda: Bags("sum", weighted=True),
    "tied": Tied,
}
TOKENS = torch.tensor([[7, 7, 7, 9], [0, 0, 0, 0], [9, 399, 12, 12], [0, 5, 5, 0], [1, 2, 3, 4]])
"""With tokens that a record has twice, in both places; padding alone; and a row that two records share."""


def alone(model: nn.Module, tokens: Tensor) -> tuple[dict[nn.Parameter, Tensor], dict[nn.Parameter, Tensor]]:
    """The clipped gradients of single records, and their maps of rows."""
    gradients, maps = [dict[nn.Parameter, list[Tensor]]() for _ in range(2)]
    for record in tokens:
        found = torch.autograd.grad((model(record[None]) ** 2).sum(), list(model.parameters()))
        norm = math.sqrt(sum(float(one.square().sum()) for one in found))
        for parameter, one in zip(model.parameters(), found, strict=True):
            gradients.setdefault(parameter, []).append(one * min(1.0, NORM / norm) if norm else one)
            touched = (one != 0).reshape(len(one), -1).any(1).double()
            maps.setdefault(parameter, []).append(touched / touched.sum().clamp(min=1).sqrt())
    return ({key: torch.stack(value).sum(0) for key, value in kind.items()} for kind in (gradients, maps))  # pyright: ignore


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pieces", [1, 2])
def test_sums_by_rows_are_those_of_single_records(name: str, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With micro-batches, of which the second adds to the first; 1e-10 is what clipping keeps for the rounding of norms."""
    monkeypatch.setattr(part, "_LARGE", 1)
    torch.manual_seed(0)
    model = MODELS[name]()
    clipper = Clipper(model, lambda tokens: model(tokens) ** 2, clip_norm=NORM)
    for piece in TOKENS.chunk(pieces):
        clipper.add(piece)
    sums, (expected, _) = clipper.take(rows=True), alone(model, TOKENS)
    for parameter, total in sums.items():
        assert total.is_sparse == (name != "tied" and len(parameter) == ROWS)
        torch.testing.assert_close(total.to_dense(), expected[parameter], rtol=1e-10, atol=1e-13)
    assert clipper.ways == {"fast"}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "tied"])
@pytest.mark.parametrize("isolation", ["checked", "enforced"])
def test_what_records_contribute_is_the_map_of_their_rows(name: str, isolation: str) -> None:
    """Row by row, of all records; those of 2^-30 are rounded down."""
    torch.manual_seed(1)
    model = MODELS[name]()
    table = next(iter(model.parameters()))
    clipper = Clipper(model, lambda tokens: model(tokens) ** 2, clip_norm=NORM, isolation=isolation, contributing={table: 1.0})
    clipper.add(TOKENS, counted=torch.tensor([True] * 4 + [False]))
    rows, (gradients, maps) = clipper.take(rows=True)[table], alone(model, TOKENS[:4])
    torch.testing.assert_close(rows.to_dense()[:, :-1], gradients[table], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(rows.to_dense()[:, -1], maps[table], rtol=0, atol=4 * 2.0**-30)
    assert clipper.take(rows=True)[table].shape == (ROWS, WIDTH + 1)  # of no batch


@pytest.mark.parametrize("norm", [0.7, 1.0, 1.5, 40.0])
def test_no_map_of_rows_is_longer_than_its_norm(norm: float) -> None:
    touched = torch.arange(1, 60)[None] <= torch.arange(60)[:, None]
    maps = contributions(touched, norm)
    lengths, rows = maps.square().sum(1).sqrt(), torch.arange(60).double().sqrt()
    assert bool((lengths <= torch.minimum(rows, torch.tensor(norm, dtype=F64))).all())
    torch.testing.assert_close(lengths[1:], torch.minimum(rows, torch.tensor(norm, dtype=F64))[1:], rtol=2.0**-26, atol=0)
    assert bool((maps * 2**30 == (maps * 2**30).round()).all())  # so that maps add up without rounding


def test_a_tied_table_has_no_map_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.clip.parts.outer_products.FORMED", 1)
    model = Tied()
    clipper = Clipper(model, lambda tokens: model(tokens), contributing={model.table.weight: 1.0}, gradient_memory=0)
    with pytest.raises(InputError, match="is also a weight"):
        clipper.add(TOKENS)


def test_sums_by_rows_and_whole_ones_add_up() -> None:
    rows = of_rows(torch.tensor([0, 2]), torch.ones(2, 2), 3)
    other = of_rows(torch.tensor([2]), torch.ones(1, 2), 3)
    for one, two in ((rows, other), (rows, other.to_dense()), (rows.to_dense(), other)):
        assert added(one, two).to_dense().tolist() == [[1, 1], [0, 0], [2, 2]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parameters": "table.weight"}, "tuple of names"),
        ({"parameters": ()}, "tuple of names"),
        ({"threshold": -1.0}, "SparseSelection.threshold"),
        ({"threshold": math.nan}, "SparseSelection.threshold"),
        ({"contribution_norm": 0.0}, "contribution_norm"),
        ({"share": 1.0}, "SparseSelection.share = 1"),
        ({"parameters": ("head.bias",)}, "head.bias is no trained table"),
        ({"parameters": ("nothing",)}, "nothing is no trained table"),
    ],
)
def test_a_selection_of_no_table_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SparseSelection(**{"parameters": ("table.weight",), "threshold": 2.0, **given}).of(dict(Twice().named_parameters()))  # pyright: ignore

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from per_record import assert_clips_like_single_records
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clipping import shared
from lethe.train.clipping.workspace import Workspace


class Tied(nn.Module):
    def __init__(self, words: int, width: int, padding: int | None = None, second: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=padding)
        self.other = nn.Embedding(words, width) if second else None
        self.middle = nn.Linear(width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.table.weight
        if self.other is not None:
            self.other.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.table(tokens)
        if self.other is not None:
            hidden = hidden * torch.sigmoid(self.other(tokens.flip(1)))
        return self.head(torch.tanh(self.middle(hidden)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the clipper could not check everything")  # records drawn alike
@settings(max_examples=examples(40))
@given(
    records=st.integers(1, 4),
    length=st.integers(1, 5),
    padding=st.sampled_from([None, 0]),
    second=st.booleans(),
    one_at_a_time=st.booleans(),
    seed=st.integers(0, 99),
)
def test_tied_embedding_and_head(records: int, length: int, padding: int | None, second: bool, one_at_a_time: bool, seed: int) -> None:
    torch.manual_seed(seed)
    model = Tied(6, 3, padding, second).double()
    held, shared._HELD = shared._HELD, 1 if one_at_a_time else shared._HELD
    try:
        assert_clips_like_single_records(model, torch.randint(6, (records, length)))
    finally:
        shared._HELD = held


def test_the_table_is_never_formed_for_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> Tensor:
        raise AssertionError("formed")

    monkeypatch.setattr(shared.TokenRows, "per_record", refuse)
    monkeypatch.setattr(shared.OuterProducts, "per_record", refuse)
    torch.manual_seed(0)
    assert_clips_like_single_records(Tied(40, 3).double(), torch.randint(40, (3, 4)))


@pytest.mark.parametrize("memory", [0, 2**24])
def test_a_tied_table_is_measured_by_cross_terms_or_formed_where_there_is_memory(memory: int) -> None:
    torch.manual_seed(0)
    records, tokens = torch.tensor([2, 0, 1, 0, 0]), torch.tensor([5, 3, 0, 3, 1])  # in any order, of other lengths, none of record 3
    rows, inputs, gradients = torch.randn(5, 8), torch.randn(4, 3, 8), torch.randn(4, 3, 6)
    formed = torch.einsum("btp,btd->bpd", gradients, inputs).index_put_((records, tokens), rows, accumulate=True)
    parts = [shared.TokenRows(records, tokens, rows, batch=4, table=6), shared.OuterProducts(inputs, gradients)]
    both = shared.Shared(parts, 48)
    with Workspace(limit=memory).open():
        torch.testing.assert_close(both.squared_norms().float(), formed.square().sum((1, 2)))
        assert (both._kept is None) == (memory == 0)
        torch.testing.assert_close(both.weighted_sum(torch.arange(4.0)).float(), torch.einsum("b,bpd->pd", torch.arange(4.0), formed))
        some = torch.tensor([3, 0])
        torch.testing.assert_close(both.formed(some, torch.float64).float(), formed[some])


def test_positions_that_cancel_between_the_layers() -> None:
    """The head's gradient is minus the table's: the sum is rounding, the cross term as large as the squares."""
    torch.manual_seed(0)
    tokens, rows = torch.tensor([0, 1]), torch.randn(2, 4)
    table = shared.TokenRows(torch.tensor([0, 1]), tokens, rows, batch=2, table=3)
    gradients = torch.zeros(2, 1, 3)
    gradients[0, 0, 0] = gradients[1, 0, 1] = -(1 - 1e-6)
    both = shared.Shared([table, shared.OuterProducts(rows[:, None], gradients)], 12)
    exact = both.per_record().double().flatten(1).square().sum(1)
    assert torch.allclose(both.squared_norms().double(), exact, rtol=1e-3)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight
        self.first, self.second = nn.Conv1d(1, 2, 3), nn.Conv1d(1, 2, 3)
        self.second.weight = self.first.weight

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.two(torch.tanh(self.one(given)))
        return self.first(hidden[:, None]) + self.second(given[:, None]).sin()


@pytest.mark.slow
@pytest.mark.parametrize("held", [1, 2**24])
def test_tied_linear_layers_and_tied_convolutions(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_HELD", held)
    torch.manual_seed(0)
    assert_clips_like_single_records(TwoHeads().double(), torch.randn(5, 4, dtype=torch.float64))


class Bare(nn.Module):
    """One parameter as the weight of a layer and as a bare parameter of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)
        self.again = self.layer.weight

    def forward(self, given: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.layer(given)), self.again)


def test_a_weight_that_is_a_bare_parameter_as_well() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Bare().double(), torch.randn(5, 3, dtype=torch.float64))

"""Several rows of each record: folded back where their order is known, and never by a shape that happens to fit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records, assert_same, clipped_sums, gradients_of_records, norms_of, squares
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.records.folds import Folds
from lethe.train.clipping.unfollowed import UnfollowedError

Operation = Callable[["Model", Tensor], Tensor]

RECORDS = 5
BATCH = torch.randn(RECORDS, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
PICTURES = torch.randn(RECORDS, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(7, (RECORDS, 3, 4), generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """Layers, and what is done with them to records of shape (6, 4)."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation
        self.first, self.layer, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.scale, self.square = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4, 4))

    def forward(self, given: Tensor) -> Tensor:
        return self.operation(self, given)


def windows(m: Model, x: Tensor) -> Tensor:
    """Windows of two positions, as Swin cuts pictures: permuted, and shifted."""
    hidden = m.first(x).roll(1, 1).view(len(x), 3, 2, 2, 2).permute(0, 1, 3, 2, 4).contiguous().view(-1, 2, 4)
    hidden = m.layer(functional.scaled_dot_product_attention(hidden, hidden, m.frozen(hidden)))
    return hidden.view(len(x), 3, 2, 4).flatten(1, 2)


def several(m: Model, x: Tensor) -> Tensor:
    """Everything that is followed on the way, in turn."""
    hidden = functional.gelu(m.first(x)).unsqueeze(1).expand(-1, 2, -1, -1).reshape(2 * len(x), 6, 4)
    hidden = functional.pad(m.frozen(hidden), (0, 0, 1, 1))[:, 1:-1] + m.norm(hidden)
    hidden = torch.cat([hidden, hidden.mean(1, keepdim=True)], dim=1).chunk(2, dim=2)[1]
    hidden = torch.stack([hidden, hidden.softmax(1)], dim=2).flatten(2)
    return m.layer(hidden.transpose(1, 2).transpose(1, 2) @ hidden.mT @ hidden).view(len(x), -1)


FOLDED: dict[str, Operation] = {
    "positions": lambda m, x: m.layer(torch.tanh(m.first(x)).view(-1, 4)).view(len(x), -1),
    "reshaped": lambda m, x: m.norm(m.first(x).reshape(-1, 4)).relu().reshape(len(x), -1),
    "split and merged": lambda m, x: m.layer(m.first(x).view(len(x), 3, 2, 4).flatten(0, 1)).view(len(x), -1),
    "the batch itself": lambda m, x: m.layer(x.flatten(0, 1)).unflatten(0, (len(x), 6)),
    "the batch's windows": lambda m, x: m.layer(x.view(-1, 2, 4)).view(len(x), -1),
    "windows": windows,
    "one parameter": lambda m, x: (torch.tanh(m.first(x)).flatten(0, 1) * m.scale).view(len(x), -1),
    "a product": lambda m, x: m.layer(functional.linear(m.first(x).flatten(0, 1), m.square, m.scale)).view(len(x), -1),
    "several": several,
    "twice": lambda m, x: m.layer(m.layer(m.first(x).flatten(0, 1)).view_as(x)).flatten(1),
}


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FOLDED)
def test_rows_in_the_records_order_are_folded_back(name: str, verify: bool) -> None:
    torch.manual_seed(0)
    model = Model(FOLDED[name]).double()
    clipper = assert_clips_like_single_records(model, BATCH, verify=verify)
    assert clipper.formed == "per layer"
    assert clipper.verified == ("checked" if verify else "not checked")
    assert_clips_like_single_records(model, BATCH[:1], verify=False)


def minor(m: Model, x: Tensor) -> Tensor:
    """All first views before all second ones."""
    hidden = m.first(x)
    one, other = m.layer(torch.cat([hidden, 2 * hidden])).chunk(2)
    return one - 3 * other


REFUSED: dict[str, Operation] = {
    "one batch after another": minor,
    "one batch of the data after another": lambda m, x: m.layer(torch.cat([x, 2 * x])).unflatten(0, (2, len(x))).sum(0),
    "repeated": lambda m, x: m.layer(m.first(x).repeat(2, 1, 1)).unflatten(0, (2, len(x)))[1],
    "positions first": lambda m, x: m.layer(m.first(x).transpose(0, 1).reshape(-1, 4)).view(6, len(x), 4).transpose(0, 1),
    "expanded in front": lambda m, x: m.layer(m.first(x).expand(2, *x.shape).flatten(0, 1)).view(2, *x.shape).sum(0),
    "turned": lambda m, x: m.layer(m.first(x).flatten(0, 1).flip(0)).flip(0).view_as(x),
    "rolled, all of it": lambda m, x: m.layer(m.first(x).roll(4).flatten(0, 1)).view_as(x).roll(-4),
    "rolled over the records": lambda m, x: m.layer(m.first(x).roll(1, 0).flatten(0, 1)).view_as(x).roll(-1, 0),
    "shifted by padding": lambda m, x: functional.pad(
        m.layer(functional.pad(m.first(x), (0, 0, 0, 0, 1, -1)).flatten(0, 1)).view_as(x), (0, 0, 0, 0, -1, 1)
    ),
    "in an order of its own": lambda m, x: m.layer(m.first(x)[torch.arange(len(x)).repeat(2)]).unflatten(0, (2, len(x))).sum(0),
    "stacked in front": lambda m, x: m.layer(torch.stack([m.first(x), x]).flatten(0, 1)).view(2, *x.shape).sum(0),
    "a parameter on positions first": lambda m, x: (m.first(x).transpose(0, 1).reshape(-1, 4) * m.scale).view(6, len(x), 4).transpose(0, 1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_rows_in_another_order_are_refused(name: str, verify: bool) -> None:
    """Without the self-check as well: what is not known to be in order is not added up, whatever its shape."""
    torch.manual_seed(0)
    model = Model(REFUSED[name]).double()
    clipper = Clipper(model, verify=verify)
    with pytest.raises(InputError):  # noqa: PT012
        with clipper.recording():
            output = model(BATCH)
        clipper.backward(squares(output))
    assert not any(tensor.any() for tensor in clipper.take().values())


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_none_of_them_is_ever_wrong(name: str) -> None:
    """At any size of the batch, twice, three times or as often as there are positions: right, or refused."""
    torch.manual_seed(0)
    model = Model(REFUSED[name]).double()
    for records in (1, 2, 3):
        for verify in (True, False) if records > 1 else (False,):
            clipper = Clipper(model, clip_norm=1.0, verify=verify)
            batch = BATCH[:records]
            try:
                with clipper.recording():
                    output = model(batch)
                clipper.backward(squares(output))
            except InputError:
                continue
            told = clipper.take()
            gradients = gradients_of_records(model, batch)
            assert_same(told, clipped_sums(gradients, 1.0), float(norms_of(gradients).clamp(max=1.0).sum()))


class Choices(nn.Module):
    """Several answers of a record, scored by one model; types and places are made on the way."""

    def __init__(self, joined: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda words, kinds, places: words + kinds + places) -> None:
        super().__init__()
        self.words, self.kinds, self.places = nn.Embedding(7, 4), nn.Embedding(2, 4), nn.Embedding(9, 4)
        self.layer, self.score, self.joined = nn.Linear(4, 4), nn.Linear(4, 1), joined
        self.kind = lambda tokens: torch.zeros_like(tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        flat = tokens.view(-1, tokens.shape[-1])
        hidden = self.joined(self.words(flat), self.kinds(self.kind(flat)), self.places((flat > 2).long().cumsum(1)))
        return self.score(torch.tanh(self.layer(hidden)).mean(1)).view(len(tokens), -1)


@pytest.mark.slow
def test_answers_of_each_record_are_folded_back() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Choices().double(), TOKENS)
    assert_clips_like_single_records(Choices().double(), TOKENS, verify=False)


def moved(words: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
    """Kinds in the order of answers first: joined to other records' words."""
    return words + places + kinds.unflatten(0, (RECORDS, -1)).transpose(0, 1).flatten(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("joined", [moved, lambda words, kinds, places: words + places + kinds.flip(0)])
def test_what_is_made_on_the_way_must_be_joined_in_order(joined: Any, verify: bool) -> None:
    torch.manual_seed(0)
    model = Choices(joined).double()
    model.kind = lambda tokens: torch.arange(len(tokens))[:, None].expand_as(tokens) % 2
    clipper = Clipper(model, verify=verify)
    with pytest.raises(InputError, match=r"nothing shows|is off by|depends on the other"):  # noqa: PT012
        with clipper.recording():
            output = model(TOKENS)
        clipper.backward(squares(output))


class Views(nn.Module):
    """Two pictures of each record through one convolution: rows of a layer whose rule wants records."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        both = torch.stack([given, given.flip(3)], dim=1).requires_grad_(False)
        return self.head(self.norm(self.conv(both.flatten(0, 1))).mean((2, 3))).view(len(given), -1)


@pytest.mark.slow
def test_pairs_of_pictures_are_folded_back_where_they_come_as_pairs() -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 3)

        def forward(self, given: Tensor) -> Tensor:
            hidden = self.head(torch.tanh(self.norm(self.conv(given.flatten(0, 1)))).mean((2, 3))).view(len(given), 2, -1)
            return hidden[:, 0] * hidden[:, 1]

    torch.manual_seed(0)
    pairs = torch.stack([PICTURES, PICTURES.flip(3)], dim=1)
    assert_clips_like_single_records(Pairs().double(), pairs)
    # Of a copy of the batch nothing is known.
    clipper = Clipper(Views().double(), verify=False)
    with pytest.raises(UnfollowedError):  # noqa: PT012
        with clipper.recording():
            output = clipper.model(PICTURES)
        clipper.backward(squares(output))


@pytest.mark.parametrize("shape", [(5, 6, 4), (10, 3), (5,)])
def test_order_is_read_off_the_graph_alone(shape: tuple[int, ...]) -> None:
    """A tensor of the right shape that came from nowhere is not in order."""
    given = torch.randn(shape, requires_grad=True)
    assert not Folds(lambda: 5).in_order(given.exp())
    folds = Folds(lambda: 5)
    folds.begin([given])
    assert folds.in_order(given.exp()) is (shape[0] == 5)
    assert folds.fold(torch.randn(10, 3)) is None
    assert folds.fold(torch.randn(10, 3, requires_grad=True)) is None


@pytest.mark.nightly(by_day="test_answers_of_each_record_are_folded_back")
@pytest.mark.slow
def test_deep_graphs_are_followed() -> None:
    given = torch.randn(5, 2, 3, requires_grad=True)
    folds = Folds(lambda: 5)
    folds.begin([given])
    hidden = given.flatten(0, 1)
    for _ in range(20_000):
        hidden = hidden + 1
    assert folds.fold(hidden) == 2

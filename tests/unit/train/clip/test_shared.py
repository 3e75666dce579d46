"""What is the same for all records: positions and weights that are made of parameters before they meet the records."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from layer_cases import CLIP, F64, clipped, flat, near, truth
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from lethe.errors import InputError
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import Group

LENGTH, WIDTH, RECORDS = 6, 4, 5
Forward = Callable[["Sharing", Tensor], Tensor]


class Sharing(nn.Module):
    """Words, what is shared, and a head."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, 3)
        self.table, self.mix, self.norm = nn.Embedding(2 * LENGTH, 2), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.bare, self.kernel = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.normed = weight_norm(nn.Linear(WIDTH, WIDTH))
        self.hidden = forward
        for parameter in self.parameters():
            parameter.data = parameter.data.double()

    def forward(self, batch: Tensor) -> Tensor:
        hidden = torch.tanh(self.hidden(self, self.words(batch)))
        return (self.head(hidden).log_softmax(-1)[..., 0] * torch.linspace(1, 2, hidden.shape[1])).sum(1)


def distances(model: Sharing) -> Tensor:
    """Of each two places, looked up and turned: (1, 2 heads, T, T)."""
    line = torch.arange(LENGTH)
    return model.table(line[:, None] - line + LENGTH).permute(2, 0, 1).unsqueeze(0)


def attended(model: Sharing, words: Tensor) -> Tensor:
    scores = (words @ words.mT)[:, None] + distances(model)
    return words + (scores.softmax(-1) @ words[:, None]).sum(1)


def masked_before(model: Sharing, words: Tensor) -> Tensor:
    """A mask that has a row for each record, though it is a constant, meets the distances first."""
    mask = torch.zeros(1, 1, LENGTH, LENGTH).tril().expand(len(words), -1, -1, -1)
    return words + ((mask + distances(model)).softmax(-1) @ words[:, None]).sum(1)


def repeated(model: Sharing, words: Tensor) -> Tensor:
    """Keys of places, by the same layer as the words', repeated for records and heads together."""
    keys = model.mix(model.norm(model.bare)).view(WIDTH, 2, 2).transpose(0, 1).repeat(len(words), 1, 1)
    split = model.mix(words).view(-1, LENGTH, 2, 2).transpose(1, 2).flatten(0, 1)
    scores = torch.bmm(split, keys.mT).view(-1, 2, LENGTH, WIDTH).sum(1)
    return words + scores


def prompted(model: Sharing, words: Tensor) -> Tensor:
    return torch.cat([model.bare.unsqueeze(0).expand(len(words), -1, -1), words], 1)


def adapted(model: Sharing, words: Tensor) -> Tensor:
    """A weight put together of factors, and scales by its norms."""
    weight = model.mix.weight + model.bare[:, :2] @ model.bare[:2]
    return functional.linear(words, bias=model.mix.bias, weight=weight) * (model.bare[0] / weight.norm(dim=1).detach())


def by_products(model: Sharing, words: Tensor) -> Tensor:
    return words @ model.bare.T.exp() + 2 * model.bare[0]


def convolved(model: Sharing, words: Tensor) -> Tensor:
    """A layer's own kernel, which it is not asked to use."""
    return functional.conv1d(words.mT, model.kernel.weight, None, padding=1, groups=WIDTH).mT


def parametrised(model: Sharing, words: Tensor) -> Tensor:
    return model.normed(words) + model.normed(model.bare)[0]


def tied(model: Sharing, words: Tensor) -> Tensor:
    return words + functional.linear(words, model.words.weight).softmax(-1) @ model.words.weight


def masked_in_attention(model: Sharing, words: Tensor) -> Tensor:
    split = model.mix(words).view(-1, LENGTH, 2, 2).transpose(1, 2)
    return functional.scaled_dot_product_attention(split, split, split, attn_mask=distances(model)).transpose(1, 2).flatten(2)


def written(model: Sharing, words: Tensor) -> Tensor:
    words = words.clone()
    words += model.bare[0]
    words[:, 0] = words[:, 0].clone() * model.bare[1].exp()
    return torch.where(words > 0, words, model.bare[2])


def checkpointed(model: Sharing, words: Tensor) -> Tensor:
    hidden: Tensor = checkpoint(lambda given: torch.tanh(attended(model, given)), words, use_reentrant=False)
    return hidden + by_products(model, hidden)


FORWARDS: dict[str, Forward] = {
    forward.__name__: forward
    for forward in (
        attended,
        masked_before,
        repeated,
        prompted,
        adapted,
        by_products,
        masked_in_attention,
        convolved,
        parametrised,
        tied,
        written,
        checkpointed,
    )
}


def batch_of(records: int) -> Tensor:
    return torch.randint(9, (records, LENGTH))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FORWARDS)
def test_gradients_are_those_of_records_alone(name: str) -> None:
    """In batches that are compared and others, of as many records as there are places or heads too; in no other way than the fast."""
    model = Sharing(FORWARDS[name])
    clipper = Clipper(model, model, CLIP)
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1):
        for records in (RECORDS, RECORDS, LENGTH, 2, WIDTH, 1):
            batch = batch_of(records)
            clipper.add(batch)
            near(flat(clipper.take()), clipped(truth(model, batch, losses=model)))
    assert clipper.ways == {"fast"}


@pytest.mark.parametrize("name", ["attended", "repeated", "adapted", "parametrised"])
def test_units_groups_frozen_parameters_and_padding(name: str) -> None:
    model, batch = Sharing(FORWARDS[name]), batch_of(RECORDS)
    for frozen in (model.mix.bias, model.head.weight):
        frozen.requires_grad_(False)
    units, counted = [[0, 3], [1], [2, 4]], torch.tensor([True, True, False, True, False])
    clipper = Clipper(model, model, CLIP)
    clipper.add(batch, units=units)
    near(flat(clipper.take()), clipped(truth(model, batch, units=units, losses=model)))
    clipper.add(batch, counted=counted)
    near(flat(clipper.take()), clipped(truth(model, batch, losses=model)[counted]))
    grouped = Clipper(model, model, [Group(parameters=("bare", "table.*"), clip_norm=0.1), Group(parameters=("*",), clip_norm=CLIP)])
    grouped.add(batch)
    first = [
        name == "bare" or name.startswith("table") for name, p in model.named_parameters() if p.requires_grad for _ in range(p.numel())
    ]
    rows, mask = truth(model, batch, losses=model), torch.tensor(first)
    near(flat(grouped.take()), clipped(rows * mask, 0.1) + clipped(rows * ~mask))
    assert clipper.ways == grouped.ways == {"fast"}


@pytest.mark.parametrize("first", [LENGTH, 2, 2 * LENGTH])
def test_a_first_batch_of_as_many_records_as_places_is_no_excuse(first: int) -> None:
    """What is looked up has as many rows as there are records, by chance, and is not of them."""
    model = Sharing(attended)
    clipper = Clipper(model, model, CLIP)
    for records in (first, RECORDS, first):
        batch = batch_of(records)
        clipper.add(batch)
        near(flat(clipper.take()), clipped(truth(model, batch, losses=model)))
    assert clipper.ways == {"fast"}


@pytest.mark.parametrize("records", [RECORDS, LENGTH])
def test_what_is_shared_is_dropped_once_for_all_records(records: int) -> None:
    """As the words are for each; a batch is compared with records alone, and with its halves, by the same draws."""

    def dropped(model: Sharing, words: Tensor) -> Tensor:
        return functional.dropout(words, 0.5) + functional.dropout(model.mix(model.bare), 0.5).sum(0) * functional.dropout(words)

    model = Sharing(dropped)
    clipper = Clipper(model, model, CLIP)
    clipper.add(batch_of(records))
    assert clipper.checked
    assert clipper.ways == {"fast"}


def test_records_that_meet_in_what_is_shared_are_refused() -> None:
    """Distances that are scaled by the batch's mean."""
    model = Sharing(lambda model, words: words + (distances(model) * words.mean()).softmax(-1).sum((1, 2))[..., None])
    with pytest.raises(InputError, match="depends on the other records"):
        Clipper(model, model, CLIP).add(batch_of(RECORDS))


def test_nothing_is_left_on_the_model() -> None:
    model = Sharing(attended)
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    Clipper(model, model, CLIP).add(batch_of(RECORDS))
    assert before == {name: set(vars(module)) for name, module in model.named_modules()}
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert model.bare.dtype == F64

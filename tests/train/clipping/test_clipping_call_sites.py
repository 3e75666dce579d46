"""What is asked for the first time in a later batch, or stands in another order there, is looked at as closely as in the first."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
import torch
from hostile_models import CLIP, sums_of, tokens
from hypothesis import assume, given
from hypothesis import strategies as st
from per_record import assert_same, clipped_sums, gradients_of_records, squares
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.checks.order import among_others, fewer_in_another_order
from lethe.train.core.comparison import chance


@pytest.fixture(autouse=True)
def _never_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)


class Words(nn.Module):
    """Words, and from a certain call on something else with them: a number, which no state of the model shows."""

    def __init__(self, then: str, begin: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places, self.head = nn.Embedding(9, 4), nn.Embedding(12, 4), nn.Linear(4, 2)
        self.then, self.begin, self.number = then, begin, 1
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.words(given)
        if self.number > self.begin:
            if self.then == "places":
                hidden = hidden + self.places(torch.arange(given.shape[1]))
            if self.then == "centred":
                hidden = hidden - hidden.detach().mean(0)
            if self.then == "over the tokens":
                hidden = hidden * 50 / (given != 0).sum()
        return self.head(hidden.mean(1))


def batches(model: Words, given: list[Tensor]) -> Clipper:
    clipper = Clipper(model, clip_norm=CLIP)
    for number, batch in enumerate(given, start=1):
        model.number = number
        with clipper.recording():
            output = model(batch)
        clipper.backward(squares(output))
        told = clipper.take()
        gradients = gradients_of_records(model, batch)
        assert_same(told, clipped_sums(gradients, CLIP), len(batch) * CLIP)
    return clipper


@pytest.mark.parametrize(("records", "places"), [(7, 7), (4, 4), (6, 6), (12, 12), (6, 12), (4, 12)])
def test_a_first_batch_with_as_many_records_as_places_is_exact(records: int, places: int) -> None:
    given = [tokens(0, records, places), tokens(1, records - 1, places), tokens(2, records, places)]
    assert batches(Words("places"), given).verified == "checked"


@pytest.mark.slow
def test_places_of_a_branch_that_comes_later_are_no_records() -> None:
    """With seven records of seven places, an embedding that no batch asked before: it was taken for records, and its rows clipped so."""
    with pytest.raises(InputError, match="places"):
        batches(Words("places", 2), [tokens(0), tokens(1), tokens(2, 7, 7)])
    assert batches(Words("places", 2), [tokens(0), tokens(1), tokens(2), tokens(3, 7, 7)]).verified == "checked"


def test_mixing_in_a_branch_that_comes_later_is_found_in_the_batch_that_takes_it() -> None:
    """Batch 3 is none of those that are looked at."""
    with pytest.raises(InputError, match="depends on the other records"):
        batches(Words("centred", 2), [tokens(seed) for seed in range(3)])


def test_a_model_that_divides_by_the_tokens_of_its_batch_is_found_where_their_number_changes() -> None:
    full = [torch.randint(1, 9, (6, 7), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    with pytest.raises(InputError, match="depends on the other records"):
        batches(Words("over the tokens"), [*full, tokens(3)])


@pytest.mark.slow
def test_what_stays_as_it_is_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from lethe.train.clipping.checks.self_check import SelfCheck

    again: list[Any] = []
    monkeypatch.setattr(SelfCheck, "_again", lambda *given: again.append(given))
    batches(Words("places"), [tokens(seed, 6 + seed % 3) for seed in range(9)])
    assert not again


class Sorting(nn.Module):
    """Sorts by length, as packing once needed, before or after the words are looked up; and back."""

    def __init__(self, before: bool, own: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.layer, self.head = nn.Embedding(9, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)
        self.before, self.own = before, own
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        lengths = (given != 0).sum(1)
        if not self.own:
            packed = pack_padded_sequence(self.words(given), lengths, batch_first=True, enforce_sorted=False)
            return self.head(pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0].sum(1))
        lengths, order = lengths.sort(descending=True, stable=True)
        vectors = self.words(given[order]) if self.before else self.words(given)[order]
        last = self.layer(pack_padded_sequence(vectors, lengths, batch_first=True))[1][0][-1]
        return self.head(last[order.argsort()])


def in_order(given: Tensor) -> Tensor:
    return given[(given != 0).sum(1).argsort(descending=True, stable=True)]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("before", [True, False])
def test_a_model_that_sorts_is_refused_though_its_first_batch_stands_in_order(before: bool, seed: int) -> None:
    """It passed as checked where it sorted vectors, in every seed, and a record then moved the sum by more than C."""
    with pytest.raises(InputError, match=r"another order|depends on the other records"):
        sums_of(Sorting(before), [in_order(tokens(seed))], verify=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("records", [2, 3, 5, 8, 30])
def test_so_few_pairs_stay_that_sorting_moves_a_record(records: int) -> None:
    """One order in a hundred turned round nothing but records of one length, which a model that sorts leaves as they are."""
    for _ in range(300):
        order = fewer_in_another_order(records)
        assert len({*order}) == len(order) == min(records - 1, 7)
        assert sum(left < right for left, right in combinations(order, 2)) <= max(0, len(order) - 2)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=12).map(sorted), st.randoms())
def test_sorting_moves_a_record_that_is_kept_among_others(lengths: list[int], drawn: random.Random) -> None:
    """A batch that stands in order. It passed, one time in four hundred, where three of a length were kept, between others in order."""
    kept = drawn.sample(range(len(lengths)), len(lengths) // 2)
    others = [place for place in range(len(lengths)) if place not in kept]
    asked, else_asked = {lengths[place] for place in kept}, {lengths[place] for place in others}
    assume(len(asked) > 1 or not asked & else_asked)
    for _ in range(20):
        order, places = among_others(kept, others)
        by_length = sorted(order, key=lengths.__getitem__)
        assert [order[place] for place in places] != [by_length[place] for place in places]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sorting_is_found_in_any_batch_whose_records_it_moves(seed: int) -> None:
    """Records of one length stay where they are, in all batches until the third."""
    full = torch.randint(1, 9, (6, 7), generator=torch.Generator().manual_seed(seed))
    sums_of(Sorting(False), [full, full], verify=True)
    with pytest.raises(InputError, match=r"another order|depends on the other records"):
        sums_of(Sorting(False), [full, full, tokens(seed)], verify=True)


@pytest.mark.nightly(by_day="test_places_of_a_branch_that_comes_later_are_no_records")
@pytest.mark.slow
def test_packing_that_sorts_by_itself_is_followed() -> None:
    model, clipper = Sorting(False, own=False), None
    clipper = Clipper(model, clip_norm=CLIP)
    for seed in range(5):
        with clipper.recording():
            output = model(tokens(seed))
        clipper.backward(squares(output))
        assert_same(clipper.take(), clipped_sums(gradients_of_records(model, tokens(seed)), CLIP), 6 * CLIP)


@pytest.mark.nightly(by_day="test_architectures_of_transformers_and_peft")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("places", [5, 6])
def test_t5_with_and_without_masks_is_exact(places: int) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=30, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, dropout_rate=0.0
    )
    model = transformers.T5ForConditionalGeneration(config).double().train()
    clipper = Clipper(model, clip_norm=CLIP)
    for seed in range(2):
        words = tokens(seed, 6, places)
        given: dict[str, Tensor] = {"input_ids": words, "decoder_input_ids": words}
        if seed % 2:
            given["attention_mask"] = (words != 0).long()
        with clipper.recording():
            output = model(**given).logits
        clipper.backward(squares(output))

        def alone(record: Tensor, given: dict[str, Tensor] = given) -> Tensor:
            return model(**{name: tensor[record] for name, tensor in given.items()}).logits

        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        rows: list[list[Tensor]] = []
        for record in range(6):
            loss = squares(alone(torch.tensor([record]))).sum()
            found: list[Tensor | None] = [*torch.autograd.grad(loss, parameters, allow_unused=True)]
            rows.append([torch.zeros_like(own) if one is None else one for own, one in zip(parameters, found, strict=True)])
        expected = {own: torch.stack([row[place] for row in rows]) for place, own in enumerate(parameters)}
        told = clipper.take()
        assert_same({own: told[own] for own in parameters}, clipped_sums(expected, CLIP), 6 * CLIP)
    assert clipper.verified == "checked"

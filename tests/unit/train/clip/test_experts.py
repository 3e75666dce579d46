"""Experts as transformers has them: each row passes through those that its router chose."""

from unittest.mock import patch

import pytest
import torch
from layer_cases import CLIP, F64, clipped, flat, near, truth
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError, RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.part import UnitRows
from lethe.train.clip.rules.experts import RoutedProducts

EXPERTS, WIDTH, INNER, LENGTH, RECORDS = 3, 4, 5, 6, 5


class Experts(nn.Module):
    """What `use_experts_implementation` makes of a class."""

    def __init__(self, *, gate: bool, bias: bool, transposed: bool) -> None:
        super().__init__()
        self.has_gate, self.has_bias, self.is_transposed, self.is_concatenated = gate, bias, transposed, True
        self.has_post_expert_norm = self._is_expert_parallel = False
        for name, outputs, inputs in (("gate_up_proj" if gate else "up_proj", INNER * (1 + gate), WIDTH), ("down_proj", WIDTH, INNER)):
            shape = (EXPERTS, inputs, outputs) if transposed else (EXPERTS, outputs, inputs)
            setattr(self, name, nn.Parameter(torch.randn(shape, dtype=F64)))
            if bias:
                setattr(self, f"{name}_bias", nn.Parameter(torch.randn(EXPERTS, outputs, dtype=F64)))
        self.act_fn = nn.SiLU()

    def _apply_gate(self, hidden: Tensor) -> Tensor:
        gate, up = hidden.chunk(2, -1)
        return self.act_fn(gate) * up

    def _projected(self, hidden: Tensor, name: str, expert: int) -> Tensor:
        weight = getattr(self, name)[expert]
        return functional.linear(
            hidden, weight.mT if self.is_transposed else weight, getattr(self, f"{name}_bias")[expert] if self.has_bias else None
        )

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        total = torch.zeros_like(hidden_states)
        for expert in range(EXPERTS):
            rows, places = (top_k_index == expert).nonzero(as_tuple=True)
            hidden = self._projected(hidden_states[rows], "gate_up_proj" if self.has_gate else "up_proj", expert)
            hidden = self._projected(self._apply_gate(hidden) if self.has_gate else self.act_fn(hidden), "down_proj", expert)
            total = total.index_add(0, rows, hidden * top_k_weights[rows, places, None])
        return total


class OfTransformers(Experts):
    """One of its own models, in which no row waits for another."""

    __module__ = "transformers.models.mixture.modeling_mixture"


class Mixture(nn.Module):
    """A word goes to its two best experts; or, where an expert has room for few, to those that the batch's other words leave room in."""

    def __init__(self, experts: type[Experts] = OfTransformers, *, room: int | None = None, **kind: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.router, self.experts = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, EXPERTS), experts(**kind)
        self.room = room
        self.to(F64)

    def forward(self, batch: Tensor) -> Tensor:
        hidden = self.words(batch).flatten(0, 1)
        weights, chosen = self.router(hidden).softmax(-1).topk(2, -1)
        if self.room is not None:
            places = functional.one_hot(chosen, EXPERTS).cumsum(0).gather(2, chosen[..., None])[..., 0]
            weights = weights * (places <= self.room)
        mixed = hidden + self.experts(hidden, chosen, weights)
        return (mixed.view(*batch.shape, WIDTH) * torch.linspace(-1, 2, WIDTH)).square().sum((1, 2)).sqrt()


@pytest.mark.parametrize(("gate", "bias", "transposed"), [(True, False, False), (True, True, True), (False, True, False)])
def test_gradients_are_those_of_records_alone(gate: bool, bias: bool, transposed: bool) -> None:
    model = Mixture(gate=gate, bias=bias, transposed=transposed)
    clipper, units = Clipper(model, model, CLIP), [[0, 2, 3], [1, 4]]
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1):
        for records in (RECORDS, RECORDS, 2, 1, EXPERTS):
            batch = torch.randint(9, (records, LENGTH))
            clipper.add(batch)
            near(flat(clipper.take()), clipped(truth(model, batch, losses=model)))
    batch = torch.randint(9, (RECORDS, LENGTH))
    clipper.add(batch, units=units)
    near(flat(clipper.take()), clipped(truth(model, batch, units=units, losses=model)))
    assert clipper.ways == {"fast"}


@pytest.mark.parametrize("experts", [Experts, OfTransformers])
@pytest.mark.parametrize("room", [1, 4, 9])
def test_experts_that_have_room_for_few_words_of_a_batch_are_refused(room: int, experts: type[Experts]) -> None:
    model = Mixture(experts, room=room, gate=True, bias=False, transposed=False)
    with pytest.raises(InputError, match="depends on the other records"):
        Clipper(model, model, CLIP).add(torch.randint(9, (2 * RECORDS, LENGTH)))


def test_room_that_is_never_short_in_a_batch_that_is_compared_lets_no_records_meet() -> None:
    """Of experts that are not of transformers' own models: as each record goes alone, a later batch cannot take its room."""
    model = Mixture(Experts, room=2 * LENGTH, gate=True, bias=False, transposed=False)
    clipper = Clipper(model, model, CLIP)
    enough, short = torch.arange(2 * LENGTH).view(2, LENGTH) % 9, torch.zeros(2, LENGTH, dtype=torch.int64)
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1):
        with pytest.warns(RecordByRecordWarning):
            clipper.add(enough)
        clipper.add(enough)
        clipper.take()
        clipper.add(short)
        near(flat(clipper.take()), clipped(truth(model, short, losses=model)))
    assert clipper.ways == {"alone"}


@pytest.mark.parametrize("at_once", [1, 2**20])
def test_norms_and_sums_are_those_of_gradients_that_are_formed(at_once: int) -> None:
    """Also of units of several records, of factors, and of experts that no row was given."""
    torch.manual_seed(0)
    inputs, gradients = torch.randn(7, LENGTH, WIDTH, dtype=F64), torch.randn(7, LENGTH, INNER, dtype=F64)
    part = RoutedProducts(inputs, gradients, torch.randint(EXPERTS - 1, (7, LENGTH)), EXPERTS)
    weights = torch.rand(7, dtype=F64)
    with patch.object(outer_products, "PAIRED", at_once), patch("lethe.train.clip.rules.experts.PAIRED", at_once):
        for own in (part, part.scaled(weights), part.grouped(UnitRows([[0, 3, 6], [1, 2], [4], [5]], torch.device("cpu")))):
            rows, factors = own.rows(), weights[: len(own.rows())]
            torch.testing.assert_close(own.squares(), rows.flatten(1).square().sum(1), rtol=1e-9, atol=0)
            near(own.weighted(factors), torch.tensordot(factors, rows, 1))
            assert not rows[:, -1].any()

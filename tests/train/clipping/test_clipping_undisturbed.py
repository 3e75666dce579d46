"""The self-check disturbs nothing: training with checks and without gives the same numbers, bit for bit, and leaves the same state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hostile_models import rows, squares
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clipping import Clipper

GLOBAL: list[int] = [0]


class Slotted:
    """An object without a dictionary of attributes."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Small(nn.Module):
    """Two layers; what a test does with them is a function of the model and its arguments."""

    shared: ClassVar[list[int]] = [0]

    def __init__(self, forward: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.slotted = Slotted()
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 2).double()
        self.rule, self.aux = forward, []
        self.generator, self.numbers = torch.Generator().manual_seed(4), np.random.default_rng(4)
        self.history, self.counts, self.calls = deque(maxlen=3), {"calls": 0}, 0
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def forward(self, given: Any) -> Tensor:
        return self.rule(self, given)

    def plain(self, given: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(given)))


def writes_into_its_argument(model: Any, given: Any) -> Tensor:
    given["hidden"] = torch.tanh(model.first(given["rows"]))
    given["rows"] = given["rows"] * 2
    return model.last(given["hidden"])


def scales_its_argument_in_place(model: Any, given: Any) -> Tensor:
    given["rows"].mul_(2)
    return model.plain(given["rows"])


def keeps_a_loss_term(model: Any, given: Any) -> Tensor:
    model.aux.clear()
    hidden = torch.tanh(model.first(given["rows"]))
    model.aux.append(hidden.square().sum(1))
    return model.last(hidden)


def makes_a_new_list(model: Any, given: Any) -> Tensor:
    hidden = torch.tanh(model.first(given["rows"]))
    model.aux = [hidden.square().sum(1)]
    return model.last(hidden)


def drops(model: Any, given: Any) -> Tensor:
    return model.last(functional.dropout(torch.tanh(model.first(given["rows"])), 0.3))


def draws_from_its_own_generator(model: Any, given: Any) -> Tensor:
    noise = torch.randn(given["rows"].shape, generator=model.generator, dtype=torch.float64)
    return model.plain(given["rows"] + 0.1 * noise)


def draws_from_numpy_and_python(model: Any, given: Any) -> Tensor:
    scale = model.numbers.uniform(1, 2) * random.uniform(1, 2) * np.random.uniform(1, 2)  # noqa: NPY002 - as models do
    return model.plain(given["rows"] * scale)


def counts_in_all_places(model: Any, given: Any) -> Tensor:
    model.calls += 1
    model.counts["calls"] += 1
    model.history.append(model.calls)
    GLOBAL[0] += 1
    return model.plain(given["rows"])


def counts_on_its_class_and_in_slots(model: Any, given: Any) -> Tensor:
    model.shared[0] += 1
    model.slotted.calls += 1
    return model.plain(given["rows"])


def attends(model: Any, given: Any) -> Tensor:
    hidden = torch.tanh(model.first(given["rows"]))[:, None].expand(-1, 3, -1)
    return model.last(functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.2).mean(1))


DOING = [
    writes_into_its_argument,
    scales_its_argument_in_place,
    keeps_a_loss_term,
    makes_a_new_list,
    drops,
    draws_from_its_own_generator,
    draws_from_numpy_and_python,
    counts_in_all_places,
    counts_on_its_class_and_in_slots,
    attends,
]


def trained(forward: Callable[[Any, Any], Tensor], verify: bool) -> tuple[list[Tensor], list[Any]]:
    """Sums of five batches with a step after each; and all states that are left."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - as models do
    GLOBAL[0] = Small.shared[0] = 0
    model, sums, given = Small(forward), list[Tensor](), []
    clipper = Clipper(model, clip_norm=0.5, verify=verify)
    for number in range(5):
        batch = {"rows": rows(number)}
        with clipper.recording():
            output = model(batch)
        losses = squares(output) + (sum(model.aux) if model.aux else 0.0)
        clipper.backward(losses)
        told = clipper.take()
        sums += [tensor.clone() for tensor in told.values()]
        with torch.no_grad():
            for parameter, tensor in told.items():
                parameter.sub_(tensor, alpha=0.1)
        given.append({name: tensor.detach().clone() for name, tensor in batch.items()})
    left = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist(), model.generator.get_state().tolist()]  # noqa: NPY002
    left += [
        model.numbers.bit_generator.state,
        list(model.history),
        model.counts,
        model.calls,
        len(model.aux),
        GLOBAL[0],
        Small.shared[0],
        model.slotted.calls,
        sorted(vars(model)),
    ]
    left.append([{name: tensor.tolist() for name, tensor in one.items()} for one in given])
    return sums, left


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("forward", DOING, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore:the clipper could not check everything")
def test_with_checks_and_without_is_the_same_bit_for_bit(forward: Callable[[Any, Any], Tensor]) -> None:
    with_checks, state = trained(forward, True)
    without, expected = trained(forward, False)
    assert all(torch.equal(one, other) for one, other in zip(with_checks, without, strict=True))
    assert state == expected


@pytest.mark.nightly(by_day="test_with_checks_and_without_is_the_same_bit_for_bit")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "neo"])
def test_attention_dropout_is_no_reason_for_leaving_something_unchecked(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "max_position_embeddings": 16}
    if kind == "bert":
        config = transformers.BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        model = transformers.BertForSequenceClassification(config)
    else:
        config = transformers.GPTNeoXConfig(**sizes, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        config.attention_dropout = config.hidden_dropout = 0.1
        model = transformers.GPTNeoXForCausalLM(config)
    clipper = Clipper(model.train())
    for seed in range(3):
        tokens = torch.randint(3, 40, (6, 6), generator=torch.Generator().manual_seed(seed))  # as many records as places
        with clipper.recording():
            logits = model(input_ids=tokens).logits
        clipper.backward(logits.flatten(1).square().mean(1))
        clipper.take()
    assert clipper.verified == "checked"

"""A survey is kept from batch to batch, and made anew as soon as anything that it rests on is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from lethe.errors import InputError
from lethe.train.clipping.rules.linear import LinearGradients
from lethe.train.clipping.rules.registry import RULES, register_rule
from lethe.train.clipping.survey import Survey, Surveys, survey
from lethe.train.model_state.named_parts import NamedParts

Change = Callable[[Any, pytest.MonkeyPatch], None]


class Own(nn.Linear):
    """A linear layer of one's own."""


def made() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(5, 3), Own(3, 3), nn.Sequential(nn.Linear(3, 3), nn.GroupNorm(1, 3)), nn.Dropout(0.1))


def told(found: Survey) -> list[object]:
    """What a survey says, by which one is compared with another."""
    layers = [(id(module), rule) for module, rule in found.rules.items()]
    own = [
        (id(module), name, id(parameter))
        for held in (found.covered, found.bare)
        for module, of in held.items()
        for name, parameter in of.items()
    ]
    return [list(found.names.values()), layers, own, list(found.paths.values()), found.behaviour]


def frozen(model: Any, _: pytest.MonkeyPatch) -> None:
    model[1].bias.requires_grad_(False)


def evaluated(model: Any, _: pytest.MonkeyPatch) -> None:
    model.eval()


def another_rule(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(RULES, Own, LinearGradients)  # taken out after the test
    register_rule(Own, lambda *given: LinearGradients(*given))


def another_class_method(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Own, "forward", lambda self, given: given)


def another_forward(model: Any, _: pytest.MonkeyPatch) -> None:
    model[2][0].forward = torch.tanh


def another_layer(model: Any, _: pytest.MonkeyPatch) -> None:
    model[2][0] = nn.Linear(3, 3)


def hooked(model: Any, _: pytest.MonkeyPatch) -> None:
    model[3].register_forward_hook(lambda *given: None)


def hooked_everywhere(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(torch_module._global_forward_hooks, -1, lambda *given: None)


CHANGES = (frozen, evaluated, another_rule, another_class_method, another_forward, another_layer, hooked, hooked_everywhere)


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_survey_rests_on_makes_another_one(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    parts, surveys = NamedParts(model), Surveys(model)
    before = surveys.of(parts.looked())
    assert surveys.of(parts.looked()) is before
    assert told(before) == told(survey(model))
    change(model, monkeypatch)
    now = surveys.of(parts.looked())
    assert now is not before
    assert told(now) == told(survey(model)) != told(before)


@pytest.mark.parametrize("name", ["max_norm", "running", "nothing"])
def test_what_is_refused_is_refused_in_a_later_batch_too(name: str) -> None:
    model: Any = made()
    parts, surveys = NamedParts(model), Surveys(model)
    surveys.of(parts.looked())
    if name == "max_norm":
        model[0].max_norm = 1.0
    elif name == "running":
        model[2][1] = nn.BatchNorm1d(3)
    else:
        model.requires_grad_(False)
    for _ in range(2):
        with pytest.raises(InputError):
            surveys.of(parts.looked())


def test_without_a_look_a_survey_is_made_anew() -> None:
    model = made()
    parts, surveys = NamedParts(model), Surveys(model)
    assert surveys.of(parts.now()) is not surveys.of(parts.now())


class Linear8bitLt(nn.Linear):
    """Its threshold is told by an object that it holds, into which no look goes."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.state: Any = type("State", (), {"threshold": 0})()

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)


def test_a_layer_that_may_share_a_scale_is_asked_every_time() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 3), Linear8bitLt().requires_grad_(False))
    parts, surveys = NamedParts(model), Surveys(model)
    surveys.of(parts.looked())
    model[1].state.threshold = 6.0
    with pytest.raises(InputError, match="threshold"):
        surveys.of(parts.looked())

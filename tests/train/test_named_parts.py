"""Names of a model's parts that are kept from step to step: any change of what is registered shows, and nothing else costs a walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lethe.train.model_state.named_parts import NamedParts
from torch import Tensor, nn


def made() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.ReLU())
    model.register_parameter("scale", nn.Parameter(torch.ones(3)))
    return model


def swap(model: Any) -> None:
    model[0].weight, model[1][0].weight = model[1][0].weight, model[0].weight


def swap_under_one_roof(model: Any) -> None:
    norm = model[1][1]
    norm.weight, norm.bias = norm.bias, norm.weight


def rename(model: Any) -> None:
    model[2].left = model[0]
    del model[0].weight
    model[0].other = nn.Parameter(torch.ones(3, 3))


def other_names(model: Any) -> None:
    table = model[0]._parameters
    held = list(table.values())
    table.clear()
    table.update(zip(("factor", "shift"), held, strict=True))


def from_parameter_to_buffer(model: Any) -> None:
    moved = model[1][1]._parameters.popitem()
    model[1][1]._buffers = {moved[0]: moved[1], **model[1][1]._buffers}


def within_the_same_tables(model: Any) -> None:
    """The keys and values of all tables, one after the other, are what they were."""
    last = model._parameters.popitem()
    model._buffers[last[0]] = last[1]


def another_module(model: Any) -> None:
    model[1][0] = nn.Linear(3, 3)


def one_more(model: Any) -> None:
    model[2].add_module("late", nn.Linear(1, 1))


def shared(model: Any) -> None:
    model[1][0].weight = model[0].weight


def no_bias(model: Any) -> None:
    model[0].register_parameter("bias", None)


def buffer_gone(model: Any) -> None:
    del model[1][1].running_mean


def buffer_set(model: Any) -> None:
    model[1][1].running_mean = torch.zeros(3)


def buffer_more(model: Any) -> None:
    model[2].register_buffer("seen", torch.zeros(1), persistent=False)


def table_replaced(model: Any) -> None:
    model[0]._parameters = {name: nn.Parameter(value.detach().clone()) for name, value in model[0]._parameters.items()}


class Renamed(nn.Linear):
    """Names its parameters in its own way, another one each time."""

    times = 0

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        self.times += 1
        return ((f"{name}{self.times}", one) for name, one in super().named_parameters(*args, **kwargs))


PARAMETERS = (swap, swap_under_one_roof, rename, other_names, another_module, one_more, shared, no_bias, table_replaced)
BUFFERS = (from_parameter_to_buffer, within_the_same_tables, buffer_gone, buffer_set, buffer_more)


def same(found: dict[str, Any], asked: Iterator[tuple[str, Any]]) -> bool:
    wanted = dict(asked)
    return list(found) == list(wanted) and all(found[name] is wanted[name] for name in wanted)


@pytest.mark.parametrize("change", [*PARAMETERS, *BUFFERS])
def test_every_change_shows(change: Callable[[Any], None]) -> None:
    model = made()
    parts = NamedParts(model)
    before = parts.now()
    assert parts.now() is before
    change(model)
    now = parts.now()
    assert now is not before
    assert same(now.modules, model.named_modules())
    assert same(now.parameters, model.named_parameters())
    assert same(now.buffers, model.named_buffers())
    assert parts.now() is now


def noted(model: Any) -> None:
    model[2].note = "text"


def another_note(model: Any) -> None:
    model[0].note = 2.0


def note_renamed(model: Any) -> None:
    model[0].other = vars(model[0]).pop("note")


def note_moved(model: Any) -> None:
    """All values, one after the other, are what they were."""
    vars(model[1])["note"] = vars(model[0]).pop("note")


def evaluated(model: Any) -> None:
    model[2].eval()


def forward_replaced(model: Any) -> None:
    model[2].forward = torch.tanh


def another_hook(model: Any) -> None:
    model[2]._forward_hooks[0] = lambda *_: None


def hook_moved(model: Any) -> None:
    model[1]._forward_hooks[0] = model[2]._forward_hooks.pop(0)


def hook_of_another_kind(model: Any) -> None:
    model[2]._backward_hooks[0] = model[2]._forward_hooks.pop(0)


ATTRIBUTES = (noted, another_note, note_renamed, note_moved, evaluated, forward_replaced, another_hook, hook_moved, hook_of_another_kind)


@pytest.mark.parametrize("change", [*PARAMETERS, *BUFFERS, *ATTRIBUTES])
def test_every_change_of_an_attribute_or_a_hook_shows_in_a_look(change: Callable[[Any], None]) -> None:
    model = made()
    model[0].note = 1.0
    model[2]._forward_hooks[0] = print
    parts = NamedParts(model)
    assert parts.now().look is None
    before = parts.looked().look
    assert parts.looked().look is before is not None
    change(model)
    parts.now()  # whoever asked of the parts in between keeps nothing from a look
    now = parts.looked().look
    assert now is not before
    assert parts.looked().look is now


def test_numbers_alone_are_no_other_part() -> None:
    model = made()
    parts = NamedParts(model)
    before = parts.now()
    model[0].weight.data += 1  # compared by value elsewhere
    model[0].weight.requires_grad_(False)  # asked of the parameter itself
    model[2].note = "text"  # pyright: ignore[reportArgumentType]
    assert parts.now() is before


def test_classes_that_name_in_their_own_way_are_asked_each_time() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Renamed(2, 2))
    assert list(NamedParts(model).now().parameters) == list(dict(model.named_parameters()))
    parts = NamedParts(model[1])
    assert (list(parts.now().parameters), list(parts.now().parameters)) == (["weight1", "bias1"], ["weight2", "bias2"])
    parts = NamedParts(plain := nn.Linear(2, 2))
    parts.now()
    plain.__class__ = Renamed
    assert (list(parts.now().parameters), list(parts.now().parameters)) == (["weight1", "bias1"], ["weight2", "bias2"])


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is:DeprecationWarning")
def test_scripted_models_have_parts_as_well() -> None:
    scripted = torch.jit.script(made())
    found = NamedParts(scripted).now()
    assert list(found.parameters) == [name for name, _ in scripted.named_parameters()]
    assert all(isinstance(buffer, Tensor) for buffer in found.buffers.values())

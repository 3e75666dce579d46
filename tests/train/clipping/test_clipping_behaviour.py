"""What a model is made to do between two batches, by hooks, switches or other functions, is checked at the very next one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from per_record import clipped, rows, small
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.behaviour import behaviour
from lethe.train.core.comparison import chance


class Switched(nn.Module):
    """Centres the batch once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.mixes, self.mode = small(), False, "alone"

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.layers(given)
        return hidden - hidden.mean(0) if self.mixes or self.mode == "together" else hidden


class Centring(nn.ReLU):
    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(input - input.mean(0))


class Hook:
    def look(self, module: nn.Module, given: Any, output: Tensor) -> None:
        """A hook that only looks."""


def centred(module: nn.Module, given: Any, output: Tensor) -> Tensor:
    return output - output.mean(0)


def by_gradient(module: nn.Module, given: Any, output: Tensor) -> None:
    output.register_hook(lambda gradient: gradient + gradient.mean(0))


def forward_hook(model: Switched) -> None:
    model.layers[2].register_forward_hook(centred)


def bound_hook(model: Switched) -> None:
    model.layers[2].register_forward_hook(partial(centred))


def forward_pre_hook(model: Switched) -> None:
    model.layers[2].register_forward_pre_hook(lambda module, given: (given[0] - given[0].mean(0),))


def tensor_hook(model: Switched) -> None:
    model.layers[0].register_forward_hook(by_gradient)


def backward_hook(model: Switched) -> None:
    model.layers[2].register_full_backward_hook(lambda module, inner, outer: (inner[0] / outer[0].norm(),))


def backward_pre_hook(model: Switched) -> None:
    model.layers[2].register_full_backward_pre_hook(lambda module, outer: (outer[0] - outer[0].mean(0),))


def function(model: Switched) -> None:
    vars(model.layers[1])["forward"] = lambda given: torch.relu(given - given.mean(0))


def another_class(model: Switched) -> None:
    object.__setattr__(model.layers[1], "__class__", Centring)


def switch(model: Switched) -> None:
    model.mixes = True


def word(model: Switched) -> None:
    model.mode = "together"


def everywhere(model: Switched) -> None:
    torch_module.register_module_forward_hook(lambda module, given, output: output - output.mean(0) if module is model.layers[0] else None)


@pytest.fixture(autouse=True)
def never(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No glances by chance, and no hooks left on all modules."""
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    yield
    torch_module._global_forward_hooks.clear()


CHANGES = (
    forward_hook,
    bound_hook,
    forward_pre_hook,
    tensor_hook,
    backward_hook,
    backward_pre_hook,
    function,
    another_class,
    switch,
    word,
    everywhere,
)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_made_to_mix_is_found_out_at_once(change: Callable[[Switched], None]) -> None:
    model = Switched()
    clipper = Clipper(model)
    for _ in range(4):
        clipped(clipper, rows(12))
    change(model)
    with pytest.raises(InputError, match=r"depends on|off by|record"):
        clipped(clipper, rows(12))


def test_a_model_that_stays_as_it_is_behaves_the_same() -> None:
    model, other = Switched(), Switched()
    before = behaviour(model)
    clipped(Clipper(model), rows(12))
    assert behaviour(model) == before != behaviour(other)
    assert hash(behaviour(model)) == hash(before)
    hook = Hook()
    handle = model.register_forward_hook(hook.look)  # a method is another object whenever it is asked for
    hooked = behaviour(model)
    assert hooked != before
    handle.remove()
    assert behaviour(model) == before
    model.register_forward_hook(hook.look)
    assert behaviour(model) == hooked

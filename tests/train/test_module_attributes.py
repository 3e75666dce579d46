"""A model that keeps records elsewhere than in its state dict, where `torch.save(model)` finds them: refused."""

from __future__ import annotations

import array
import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from lethe.train.model_state.module_attributes import attribute_of, kept_values
from networks import COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run, one_thread
from private_loops import Loop
from torch import Tensor, nn
from torch.nn.utils import prune

from lethe.errors import HypothesisError
from lethe.run.run import Run
from lethe.train import fit, fit_head


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


@dataclass
class Notes:
    seen: list[Tensor] = field(default_factory=list)


class Slotted:
    __slots__ = ("it",)

    def __init__(self) -> None:
        self.it: Any = None


class Remembers(nn.Module):
    """Does with its rows what it is told, and then trains on as if nothing were.

    Args:
        keep: called with itself and the detached rows.
        begin: sets it up.
        step: the first at which it keeps anything, as `step` says.
    """

    def __init__(self, keep: Callable[[Any, Tensor], Any], begin: Callable[[Any], Any] = lambda model: None, first: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(COLUMNS, 3).double()
        self.keep, self.first, self.step = keep, first, 1
        begin(self)

    def forward(self, rows: Tensor) -> Tensor:
        if self.step >= self.first:
            self.keep(self, rows.detach())
        return self.layer(rows)


def setting(name: str, value: Callable[[Tensor], Any]) -> Callable[[Any, Tensor], None]:
    return lambda model, rows: setattr(model, name, value(rows))


def closure(model: Any) -> None:
    caught: list[Tensor] = []
    model.layer.register_forward_hook(lambda module, args, output: caught.append(args[0].detach()))


def default(model: Any) -> None:
    def note(module: nn.Module, args: Any, output: Tensor, into: dict[str, Tensor] = {}) -> None:  # noqa: B006
        into["it"] = args[0].detach()

    model.layer.register_forward_hook(note)


def bound(model: Any) -> None:
    notes: deque[Tensor] = deque(maxlen=1)
    model.layer.register_forward_hook(functools.partial(lambda kept, module, args, output: kept.append(args[0]), notes))


def on_a_parameter(model: Any, rows: Tensor) -> None:
    model.layer.weight.last = rows


def pass_by(model: Any, rows: Tensor) -> None:
    """Nothing: a hook keeps it."""


KEEPING: dict[str, tuple[Callable[[Any, Tensor], Any], Callable[[Any], Any]]] = {
    "the last input": (setting("last_input", lambda rows: rows), lambda model: None),
    "it, over what was there": (setting("last_input", lambda rows: rows[0]), lambda model: setattr(model, "last_input", None)),
    "in place": (lambda model, rows: model.bank[0].copy_(rows[0]), lambda model: setattr(model, "bank", [torch.zeros(COLUMNS).double()])),
    "an array": (setting("last", lambda rows: rows.numpy().copy()), lambda model: None),
    "an array of objects": (setting("last", lambda rows: np.array([rows[0], None], dtype=object)), lambda model: None),
    "numbers": (setting("last", lambda rows: rows[0].tolist()), lambda model: None),
    "whole numbers": (setting("last", lambda rows: [number > 0 for number in rows[0].tolist()] + [3, len(rows)]), lambda model: None),
    "bytes": (setting("last", lambda rows: rows[0].numpy().tobytes()), lambda model: None),
    "another kind of array": (setting("last", lambda rows: array.array("d", rows[0].tolist())), lambda model: None),
    "a set": (setting("last", lambda rows: set(rows[0].tolist())), lambda model: None),
    "a list of a submodule": (lambda model, rows: model.layer.seen.append(rows[0]), lambda model: setattr(model.layer, "seen", [])),
    "a dict in a dict": (lambda model, rows: model.notes["a"].update(it=rows), lambda model: setattr(model, "notes", {"a": {}})),
    "floats by key": (lambda model, rows: model.notes.update(it=float(rows[0, 0])), lambda model: setattr(model, "notes", {})),
    "an object": (lambda model, rows: model.notes.seen.append(rows), lambda model: setattr(model, "notes", Notes())),
    "a namespace": (lambda model, rows: setattr(model.notes, "it", rows), lambda model: setattr(model, "notes", SimpleNamespace())),
    "slots": (lambda model, rows: setattr(model.notes, "it", rows), lambda model: setattr(model, "notes", Slotted())),
    "a distribution": (setting("prior", lambda rows: torch.distributions.Normal(rows[0], 1.0, validate_args=False)), lambda model: None),
    "a closure": (pass_by, closure),
    "a default": (pass_by, default),
    "a partial function": (pass_by, bound),
    "a module that is none of its own": (
        lambda model, rows: model.aside[0].weight.data.copy_(rows[:3, :COLUMNS]),
        lambda model: setattr(model, "aside", [nn.Linear(COLUMNS, 3).double()]),
    ),
    "on a parameter": (on_a_parameter, lambda model: None),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", KEEPING)
def test_records_in_attributes_are_refused_at_the_first_step(name: str) -> None:
    keep, begin = KEEPING[name]
    run = make_network_run("full", release="all", noise_multiplier=1.0)
    done: list[int] = []

    def tell(step: int, steps: int) -> None:
        done.append(step)

    for verify in (True, False):
        with pytest.raises(HypothesisError, match=r"kept something of what passed through|keeps what it saw"):
            fit(Remembers(keep, begin), CROSS_ENTROPY, make_data(), run, verify=verify, progress=tell)
    assert not done
    loop = Loop(run, model=Remembers(keep, begin), verify=False)
    with pytest.raises(HypothesisError, match="kept something of what passed through"):
        loop.whole()
    assert loop.engine.steps == 0


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["the last input", "a list of a submodule"])
@pytest.mark.parametrize("first", [3, 9])
def test_and_later_ones_by_the_end(name: str, first: int) -> None:
    run = make_network_run("full", release="last", noise_multiplier=1.0)
    model: Any = Remembers(*KEEPING[name], first)

    def tell(done: int, of: int) -> None:
        model.step = done + 1

    with pytest.raises(HypothesisError, match="kept something of what passed through"):
        fit(model, CROSS_ENTROPY, make_data(), run, progress=tell)
    loop = Loop(run.replace(release="all"), model=Remembers(*KEEPING[name], first))

    def whole() -> None:
        for inputs, targets in loop.loader:
            loop.model.step = loop.engine.steps + 1
            loop.use(inputs, targets)
        loop.engine.recorded_run()

    with pytest.raises(HypothesisError, match=r"last_input|seen"):
        whole()


def test_what_was_looked_at_after_training_may_be_cleared() -> None:
    loop = Loop(make_network_run("full", noise_multiplier=1.0), model=Remembers(*KEEPING["the last input"], 10))
    for inputs, targets in loop.loader:
        loop.use(inputs, targets)
    loop.model.step = 10
    loop.model(make_data()[0])
    with pytest.raises(HypothesisError, match="last_input"):
        loop.engine.recorded_run()
    del loop.model.last_input
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


class Honest(nn.Module):
    """Counts its calls, holds tables, its own parameters a second time, and a recurrent layer, which does so too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers: Any = nn.ModuleList([nn.Linear(COLUMNS, 6).double(), nn.Linear(6, 3).double()])
        self.recurrent = nn.LSTM(2, 3, batch_first=True).double()
        self.twice = [self.layers[0].weight, self.layers[1].weight.detach()[:2]]
        self.table, self.calls, self.counts = torch.arange(4.0).double(), 0, {"calls": 0, "trained": True}
        self.itself = [self]
        self.act: Callable[[Tensor], Tensor] = functools.partial(nn.functional.leaky_relu, negative_slope=0.1)
        counted = [0]

        def count(module: nn.Module, args: Any, output: Tensor) -> None:
            counted[0] += 1

        self.register_forward_hook(count)

    def forward(self, rows: Tensor) -> Tensor:
        self.calls += 1
        self.counts["calls"] += 1
        hidden = self.act(self.layers[0](rows * (1 + self.table)))
        return self.layers[1](hidden) + self.recurrent(rows.view(-1, 2, 2))[0][:, -1]


@pytest.mark.slow
def test_what_holds_nothing_of_records_passes() -> None:
    run = make_network_run(release="all", noise_multiplier=1.0)
    assert fit(Honest(), CROSS_ENTROPY, make_data(), run).run == run
    assert with_fresh_noise(Loop(run, model=Honest()).whole()) == run


@pytest.mark.slow
def test_a_table_of_the_records_shape_is_to_be_made_before() -> None:
    def table(model: Any, rows: Tensor) -> None:
        if model.table is None:
            model.table = torch.arange(rows.shape[1])

    def begin(model: Any) -> None:
        model.table = None

    run = make_network_run(release="all", noise_multiplier=1.0)
    with pytest.raises(HypothesisError, match="call the model once on zeros"):
        fit(Remembers(table, begin), CROSS_ENTROPY, make_data(), run)
    model: Any = Remembers(table, begin)
    model(torch.zeros(2, COLUMNS).double())
    assert fit(model, CROSS_ENTROPY, make_data(), run).run == run


@pytest.mark.parametrize("reparametrised", ["weight_norm", "spectral_norm", "pruned"])
def test_weights_that_torch_computes_of_parameters_are_no_records(reparametrised: str) -> None:
    layer = nn.Linear(4, 3)
    if reparametrised == "weight_norm":
        with pytest.warns(FutureWarning, match="weight_norm"):
            nn.utils.weight_norm(layer)
    elif reparametrised == "spectral_norm":
        nn.utils.spectral_norm(layer)
    else:
        prune.random_unstructured(layer, "weight", amount=0.5)
    assert not any("weight" in name for name in kept_values(nn.Sequential(layer)))


class Extra(nn.Module):
    """What it saw goes into the state dict by a door of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.hidden = nn.Linear(COLUMNS, 3).double(), Slotted()

    def get_extra_state(self) -> Any:
        return {"it": getattr(self.hidden, "it", None)}

    def set_extra_state(self, state: Any) -> None:
        pass

    def forward(self, rows: Tensor) -> Tensor:
        self.hidden.it = rows[0].tolist()
        return self.layer(rows)


def test_extra_state_is_compared() -> None:
    with pytest.raises(HypothesisError, match="kept something"):
        fit(Extra(), CROSS_ENTROPY, make_data(), make_network_run(release="all", noise_multiplier=1.0), verify=False)


def test_a_backbone_keeps_no_records_either() -> None:
    class Backbone(nn.Module):
        last: Tensor | None = None

        def forward(self, rows: Tensor) -> Tensor:
            self.last = rows.clone()
            return rows

    loss = {"kind": "softmax_regression", "feature_norm": 1.0, "intercept": True, "evidence": "enforced"}
    run = Run(
        records=23,
        batches={"design": "full"},  # pyright: ignore[reportArgumentType]
        steps=2,
        step_size=0.5,
        noise_multiplier=1.0,
        release="last",
        loss=loss,  # pyright: ignore[reportArgumentType]
    )
    with pytest.raises(HypothesisError, match="kept something of what passed through"):
        fit_head(Backbone(), nn.Linear(COLUMNS, 3).double(), make_data(), run)


def test_walking_ends_in_circles_and_does_not_enter_what_is_large_or_foreign() -> None:
    model: Any = make_network()
    circle: list[Any] = [1.0]
    circle.append(circle)
    model.circle, model.parent, model.kind, model.library = circle, model, Remembers, np
    model.optimizer = torch.optim.Adam(model.parameters())
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    model.deep = deep
    before = kept_values(model)
    assert kept_values(model) == before
    circle[0] = 2.0
    assert kept_values(model) != before


class Behind(nn.Module):
    batch_first = False


class Computed(nn.Module):
    @property
    def batch_first(self) -> bool:
        return False


class Around(nn.Module):
    """Hands on what it does not have itself, as adapters do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def test_attributes_are_found_wherever_getattr_finds_them() -> None:
    of_its_own = nn.Linear(2, 2)
    of_its_own.batch_first = False  # pyright: ignore[reportAttributeAccessIssue,reportArgumentType]
    for module in (Behind(), Computed(), Around(nn.GRU(2, 2)), Around(Behind()), of_its_own, nn.GRU(2, 2)):
        assert attribute_of(module, "batch_first", True) is getattr(module, "batch_first", True) is False
    for module in (nn.Linear(2, 2), Around(nn.Linear(2, 2)), nn.GRU(2, 2, batch_first=True)):
        assert attribute_of(module, "batch_first", True) is True

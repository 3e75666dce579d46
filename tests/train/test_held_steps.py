"""Steps, hooks, callbacks and models that move parameters beside the optimiser: refused in one's own loops and in `fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from held_loops import RELEASES, Release, make_loop
from helpers import as_planned
from networks import COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train import fit


def other_method(loop: Loop) -> None:
    own = loop.optimizer.step

    def twice() -> None:
        own()
        with torch.no_grad():
            loop.model[0].weight.add_(loop.model[0].weight.grad, alpha=-0.1)

    loop.optimizer.step = twice  # pyright: ignore


def own_hook(loop: Loop) -> None:
    def shrink(*_: object) -> None:
        loop.model[0].weight.data.mul_(0.9)

    loop.optimizer.register_step_post_hook(shrink)


def a_plain_optimizer_besides(loop: Loop) -> None:
    torch.optim.SGD(loop.model.parameters(), lr=0.1).step()


def a_functional_update_besides(loop: Loop) -> None:
    features, targets = make_data()
    gradients = torch.autograd.grad(CROSS_ENTROPY(loop.model(features), targets).mean(), list(loop.model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(loop.model.parameters(), gradients, strict=True):
            parameter.sub_(gradient)


BESIDES = (other_method, own_hook, a_plain_optimizer_besides, a_functional_update_besides)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 9])
@pytest.mark.parametrize("change", BESIDES)
def test_steps_of_anything_else_are_refused(change: Callable[[Loop], None], place: int) -> None:
    """At step 1 by the time of step 2, at the last step by recorded_run."""
    loop = make_loop()

    def whole() -> None:
        for inputs, targets in loop.loader:
            loop.engine.backward(loop.losses(inputs, targets))
            if loop.engine.steps == place - 1:
                change(loop)
            loop.optimizer.step()
        loop.engine.recorded_run()

    with pytest.raises(HypothesisError, match=r"changed by something else|step hooks|hooks were changed|is not the certified"):
        whole()
    assert loop.engine.steps in (place - 1, place)


class Codebook(nn.Module):
    """Vectors of which one is overwritten by a raw record at some steps, as where a dead code is started anew."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codebook, self.head = nn.Embedding(4, COLUMNS).double(), nn.Linear(COLUMNS, 3).double()
        self.steps, self.step = steps, 1

    def forward(self, rows: Tensor) -> Tensor:
        if self.step in self.steps:
            self.codebook.weight.data[2] = rows[0].detach()
        nearest = torch.cdist(rows.detach(), self.codebook.weight.detach()).argmin(1)
        return self.head(rows + self.codebook(nearest))


def told(loop: Loop) -> None:
    """A whole loop whose model knows at which step it is."""
    for inputs, targets in loop.loader:
        loop.model.step = loop.engine.steps + 1
        loop.use(inputs, targets)


HELD = r"codebook\.weight.* changed"
REFUSED = HELD + "|depends on the other records|another than that of the record alone"
STOOD_IN = "writes a parameter"  # what a loop is told before it is compared: nothing can stand in for such a parameter


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")  # a parameter that is written has no stand-in
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_a_record_written_into_a_trained_weight_in_a_later_batch_is_refused(release: Release, verify: bool) -> None:
    run = make_network_run("full", release=release, noise_multiplier=1.0, clip_norm=5.0)
    for steps in ((5, 7), (6,), (9,)):
        model: Any = Codebook(steps)

        def tell(done: int, of: int, model: Any = model) -> None:
            model.step = done + 1

        # One batch in 128 is looked at by chance, and what it finds first may be that the records of that batch meet.
        with pytest.raises((HypothesisError, InputError), match=REFUSED if verify else HELD):
            fit(model, CROSS_ENTROPY, make_data(), run, verify=verify, progress=tell)
        assert model.step == steps[0]
        if release == "last":
            continue
        loop = Loop(run, model=Codebook(steps), verify=verify)
        with pytest.raises((HypothesisError, InputError), match=f"{REFUSED if verify else HELD}|{STOOD_IN}"):
            told(loop)
        assert loop.engine.steps == steps[0] - 1
        with pytest.raises((HypothesisError, InputError), match=f"interrupted|{HELD}|{STOOD_IN}" if verify else f"interrupted|{STOOD_IN}"):
            loop.losses(*make_data())
    assert as_planned(fit(Codebook(()), CROSS_ENTROPY, make_data(), run, verify=verify).run) == run


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 4, 9])
@pytest.mark.parametrize(("release", "optimizer"), [("all", None), ("last", None), ("all", torch.optim.SGD)])
def test_the_callback_of_fit_may_not_move_parameters(release: Release, step: int, optimizer: Any) -> None:
    model: Any = make_network()

    def change(done: int, steps: int) -> None:
        if done == step:
            model[0].weight.data.mul_(0.5)

    run = make_network_run(release=release, noise_multiplier=1.0)
    own = None if optimizer is None else optimizer(model.parameters(), lr=0.5)
    with pytest.raises(HypothesisError, match=r"0\.weight was changed by something else"):
        fit(model, CROSS_ENTROPY, make_data(), run, optimizer=own, progress=change)


@pytest.mark.slow
def test_nor_by_a_second_optimizer_or_within_the_loss() -> None:
    model: Any = make_network()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    features, targets = make_data()

    def change(done: int, steps: int) -> None:
        second.zero_grad()
        CROSS_ENTROPY(model(features), targets).mean().backward()
        second.step()

    run = make_network_run(release="all", noise_multiplier=1.0)
    with pytest.raises(HypothesisError, match="changed by something else"):
        fit(model, CROSS_ENTROPY, make_data(), run, progress=change)

    other: Any = make_network()

    def loss(outputs: Tensor, classes: Tensor) -> Tensor:
        other[3].bias.data.add_(outputs.detach().mean(0))
        return CROSS_ENTROPY(outputs, classes)

    with pytest.raises(HypothesisError, match=r"3\.bias"):
        fit(other, loss, make_data(), run, verify=False)

"""Trained parameters that anything but the step moved, however it was written: refused in loops of one's own and in `fit`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
import torch
from helpers import with_fresh_noise
from networks import COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from private_loops import Loop
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train import Checkpoints, PrivacyEngine, fit

Release = Literal["all", "last"]
RELEASES: tuple[Release, Release] = ("all", "last")


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def make_loop(release: Release, **options: Any) -> Loop:
    return Loop(make_network_run(release=release, noise_multiplier=1.0), **options)


def through_data(model: nn.Module) -> None:
    model[0].weight.data.clamp_(-0.1, 0.1)  # pyright: ignore


def through_numpy(model: nn.Module) -> None:
    model[0].bias.detach().numpy()[1] += 1e-9  # pyright: ignore


def through_dlpack(model: nn.Module) -> None:
    torch.from_dlpack(model[3].weight.detach()).mul_(2)  # pyright: ignore


def in_place(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].weight.add_(1e-6)  # pyright: ignore


def loaded(model: nn.Module) -> None:
    model.load_state_dict({name: tensor / 2 for name, tensor in make_network().state_dict().items()})


def another_parameter(model: nn.Module) -> None:
    model[0].weight = nn.Parameter(make_network()[0].weight.detach() + 1)  # pyright: ignore


def one_more(model: nn.Module) -> None:
    model.extra = nn.Parameter(torch.ones(3))  # pyright: ignore


CHANGES: tuple[Callable[[nn.Module], None], ...] = (through_data, through_numpy, through_dlpack, in_place, loaded, another_parameter)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_steps_is_refused_before_the_next(change: Callable[[nn.Module], None], release: Release) -> None:
    loop = make_loop(release)
    batches = iter(loop.loader)
    loop.use(*next(batches))
    kept = copy.deepcopy(loop.model.state_dict())
    change(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.losses(*next(batches))
    if change is not another_parameter:
        loop.model.load_state_dict(kept)  # put right, training goes on
        loop.engine.backward(loop.losses(*make_rows(loop)))
        loop.optimizer.step()


def make_rows(loop: Loop) -> tuple[Tensor, Tensor]:
    """As many as the present batch has."""
    rows = torch.arange(len(loop.engine.counted)) % len(make_data()[0])
    features, targets = make_data()
    return features[rows], targets[rows]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_backward_and_step_is_refused(change: Callable[[nn.Module], None], release: Release) -> None:
    loop = make_loop(release)
    loop.engine.backward(loop.losses(*next(iter(loop.loader))))
    change(loop.model)
    before = flat(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.optimizer.step()
    assert torch.equal(flat(loop.model), before)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("change", [*CHANGES, one_more])
def test_a_change_after_the_last_step_is_refused_by_recorded_run(change: Callable[[nn.Module], None], release: Release) -> None:
    loop = make_loop(release)
    run = loop.whole()
    kept = copy.deepcopy(loop.model.state_dict())
    change(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.engine.recorded_run()
    if change not in (another_parameter, one_more):
        loop.model.load_state_dict(kept)
        assert loop.engine.recorded_run() == run


def times_ten(gradient: Tensor) -> None:
    gradient.data.mul_(10)


def clamped(gradient: Tensor) -> None:
    gradient.data.clamp_(-1e-3, 1e-3)


def one_number(gradient: Tensor) -> None:
    gradient.numpy().reshape(-1)[0] += 1e-9


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("change", [times_ten, clamped, one_number])
def test_gradients_changed_unseen_by_versions_are_refused(change: Callable[[Tensor], None], release: Release) -> None:
    loop = make_loop(release)
    loop.engine.backward(loop.losses(*next(iter(loop.loader))))
    before = flat(loop.model)
    change(loop.model[3].weight.grad)
    with pytest.raises(InputError, match=r"3\.weight: its \.grad is not the noisy gradient"):
        loop.optimizer.step()
    assert torch.equal(flat(loop.model), before)


def test_the_checkpoint_of_least_training_loss_is_not_the_last_iterate() -> None:
    """The choice tells of the records: an attack on it shows more than the last iterate's certificate allows."""
    loop = make_loop("last")
    features, targets = make_data()
    best, kept = float("inf"), copy.deepcopy(loop.model.state_dict())
    for inputs, classes in loop.loader:
        loop.use(inputs, classes)
        with torch.no_grad():
            loss = float(CROSS_ENTROPY(loop.model(features), targets).mean())
        if loop.engine.steps < 9 and loss < best:
            best, kept = loss, copy.deepcopy(loop.model.state_dict())
    loop.model.load_state_dict(kept)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.engine.recorded_run()


def test_nor_is_an_average_of_iterates() -> None:
    loop = make_loop("last")
    total = torch.zeros_like(flat(loop.model))
    for inputs, classes in loop.loader:
        loop.use(inputs, classes)
        total += flat(loop.model) / loop.run.total_steps
    nn.utils.vector_to_parameters(total, loop.model.parameters())
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.engine.recorded_run()


class TwiceSGD(torch.optim.SGD):
    """Takes the step and then half of it again."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(parameter.grad, alpha=-group["lr"] / 2)


def other_class(loop: Loop) -> None:
    loop.optimizer.__class__ = TwiceSGD


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


@pytest.mark.parametrize("place", [1, 9])
@pytest.mark.parametrize(
    ("release", "change"), [*(("last", change) for change in (other_class, *BESIDES)), *(("all", change) for change in BESIDES)]
)
def test_steps_of_anything_else_are_refused(release: Release, change: Callable[[Loop], None], place: int) -> None:
    """At step 1 by the time of step 2, at the last step by recorded_run."""
    loop = make_loop(release)

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


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_a_record_written_into_a_trained_weight_in_a_later_batch_is_refused(release: Release, verify: bool) -> None:
    run = make_network_run("full", release=release, noise_multiplier=1.0, clip_norm=5.0)
    for steps in ((5, 7), (6,), (9,)):
        model: Any = Codebook(steps)

        def tell(done: int, of: int, model: Any = model) -> None:
            model.step = done + 1

        with pytest.raises(HypothesisError, match=r"codebook\.weight.* changed"):
            fit(model, CROSS_ENTROPY, make_data(), run, verify=verify, progress=tell)
        assert model.step == steps[0]
        loop = Loop(run, model=Codebook(steps), verify=verify)
        with pytest.raises(HypothesisError, match=r"codebook\.weight.* changed"):
            told(loop)
        assert loop.engine.steps == steps[0] - 1
        with pytest.raises(InputError, match="interrupted"):
            loop.losses(*make_data())
    assert fit(Codebook(()), CROSS_ENTROPY, make_data(), run, verify=verify).run == run


@pytest.mark.parametrize("step", [1, 4, 9])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("optimizer", [None, torch.optim.SGD])
def test_the_callback_of_fit_may_not_move_parameters(release: Release, step: int, optimizer: Any) -> None:
    model: Any = make_network()

    def change(done: int, steps: int) -> None:
        if done == step:
            model[0].weight.data.mul_(0.5)

    run = make_network_run(release=release, noise_multiplier=1.0)
    own = None if optimizer is None else optimizer(model.parameters(), lr=0.5)
    with pytest.raises(HypothesisError, match=r"0\.weight was changed by something else"):
        fit(model, CROSS_ENTROPY, make_data(), run, optimizer=own, progress=change)


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


def test_an_optimizer_of_fit_that_steps_twice_is_refused_where_the_last_iterate_counts() -> None:
    model: Any = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    own = optimizer.step

    def twice() -> None:
        own()
        own()

    optimizer.step = twice  # pyright: ignore
    with pytest.raises(HypothesisError, match="is not the certified"):
        fit(model, CROSS_ENTROPY, make_data(), make_network_run(release="last", noise_multiplier=1.0), optimizer=optimizer)


def test_what_was_changed_is_not_saved(tmp_path: Any) -> None:
    """A checkpoint would carry it over into a training that knows nothing of it."""
    model: Any = make_network()

    def change(done: int, steps: int) -> None:
        if done == 3:
            model[0].weight.data.mul_(0.5)

    run = make_network_run(release="last", noise_multiplier=1.0)
    with pytest.raises(HypothesisError, match=r"0\.weight was changed by something else"):
        fit(model, CROSS_ENTROPY, make_data(), run, progress=change, checkpoints=Checkpoints(folder=tmp_path, every=3))
    again = make_network()
    fitted = fit(again, CROSS_ENTROPY, make_data(), run, checkpoints=Checkpoints(folder=tmp_path, every=3))
    assert fitted.run.total_steps == 9

    loop = make_loop("all", checkpoints=Checkpoints(folder=tmp_path / "loop", every=3))
    batches = iter(loop.loader)
    for _ in range(3):
        loop.use(*next(batches))
    loop.model[0].weight.data.mul_(0.5)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.engine.save()
    with pytest.raises(HypothesisError, match="changed by something else"):
        next(batches)
    loop.engine.close()


def test_after_the_last_iterate_was_recorded_early_training_does_not_go_on() -> None:
    """Its release and that of a later iterate add up, which no certificate of either says."""
    loop = make_loop("last")
    batches = iter(loop.loader)
    for _ in range(4):
        loop.use(*next(batches))
    assert loop.engine.recorded_run(steps_fixed_in_advance=True).total_steps == 4
    assert loop.engine.recorded_run(steps_fixed_in_advance=True).total_steps == 4
    with pytest.raises(InputError, match="recorded after step 4"):
        loop.use(*next(batches))
    loop = make_loop("last")
    batches = iter(loop.loader)
    for _ in range(4):
        loop.use(*next(batches))
    inputs, targets = next(batches)
    loop.engine.recorded_run(steps_fixed_in_advance=True)
    with pytest.raises(InputError, match="recorded after step 4"):
        loop.use(inputs, targets)


def test_where_all_is_released_it_may_be_recorded_early_and_go_on() -> None:
    loop = make_loop("all")
    for inputs, targets in loop.loader:
        loop.use(inputs, targets)
        if loop.engine.steps == 4:
            assert with_fresh_noise(loop.engine.recorded_run()) == loop.run
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


def reads_only(loop: Loop) -> None:
    assert all(float(parameter.grad.norm()) >= 0 for parameter in loop.model.parameters() if parameter.grad is not None)
    copy.deepcopy(loop.model.state_dict())
    with torch.no_grad():
        loop.model.eval()
        loop.model(make_data()[0])
        loop.model.train()


def swaps_and_swaps_back(loop: Loop) -> None:
    kept = copy.deepcopy(loop.model.state_dict())
    loop.model.load_state_dict(make_network().state_dict())
    loop.model.load_state_dict(kept)


@pytest.mark.parametrize("change", [reads_only, swaps_and_swaps_back])
@pytest.mark.parametrize(("release", "make"), [("last", torch.optim.SGD), ("all", torch.optim.AdamW), ("all", torch.optim.Adagrad)])
def test_honest_loops_pass(release: Release, make: Any, change: Callable[[Loop], None]) -> None:
    loop = make_loop(release, optimizer=lambda parameters: make(parameters, lr=0.5), physical_size=3)
    scheduler = torch.optim.lr_scheduler.StepLR(loop.optimizer, step_size=1, gamma=1.0 if release == "last" else 0.9)
    average = torch.optim.swa_utils.AveragedModel(loop.model)
    for inputs, targets in loop.loader:
        change(loop)
        loop.engine.backward(loop.losses(inputs, targets))
        change(loop)
        loop.optimizer.step()
        change(loop)
        loop.optimizer.zero_grad(set_to_none=False)
        scheduler.step()
        average.update_parameters(loop.model)
    loop.engine.close()
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


def test_hooks_of_the_optimizer_s_own_are_part_of_its_step_where_all_is_released() -> None:
    loop = make_loop("all")

    def within(*_: object) -> None:
        loop.model[0].weight.data.clamp_(-0.3, 0.3)

    loop.optimizer.register_step_post_hook(within)
    assert with_fresh_noise(loop.whole()) == loop.run
    assert float(loop.model[0].weight.detach().abs().max()) <= 0.3


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_build_of_sgd_is_the_certified_step(options: dict[str, bool], dtype: torch.dtype) -> None:
    model = make_network(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, **options)
    features, targets = make_data(dtype)
    run = make_network_run(release="last", noise_multiplier=1.0)
    fit(model, CROSS_ENTROPY, (features, targets), run, optimizer=optimizer)
    model = make_network(dtype)
    engine = PrivacyEngine(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, **options)
    _, _, loader = engine.make_private(module=model, optimizer=optimizer, data=(features, targets))
    for inputs, classes in loader:
        with engine.recording():
            losses = CROSS_ENTROPY(model(inputs), classes)
        engine.backward(losses)
        optimizer.step()
    assert engine.recorded_run() == run


def test_parameters_that_are_no_numbers_any_more_are_compared_by_their_bits() -> None:
    loop = make_loop("all")
    batches = iter(loop.loader)
    loop.use(*next(batches))
    loop.optimizer.param_groups[0]["lr"] = float("inf")
    loop.use(*next(batches))
    assert not bool(torch.isfinite(flat(loop.model)).all())
    loop.losses(*next(batches))  # not refused as a change

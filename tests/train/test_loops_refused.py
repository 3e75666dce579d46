"""What leaves the order of a loop, mixes records in it, or writes to parameters beside the step: refused, and nothing moves; or exact."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from networks import COLUMNS, CROSS_ENTROPY, Loop, by_hand, fit_network, flat, losses_of, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.optim import SGD

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.train import Checkpoints, PrivacyEngine
from lethe.train.core.tensors import sharing_memory
from lethe.train.network.steps import NoisySums


def first(loop: Loop) -> Any:
    return next(iter(loop.loader))


def backward(loop: Loop) -> Any:
    """The first batch, used."""
    batch = first(loop)
    loop.engine.backward(batch)
    return batch


def plain_backward(loop: Loop, batch: Any) -> None:
    losses_of(loop.model)(batch).mean().backward()


def gradient_replaced(loop: Loop) -> None:
    backward(loop)
    loop.model[0].weight.grad = torch.ones_like(loop.model[0].weight)
    loop.optimizer.step()


def batch_left_out(loop: Loop) -> None:
    for batch in loop.loader:
        if loop.engine.steps != 1:
            loop.use(batch)


def out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError


def an_error_within(loop: Loop) -> None:
    batch = first(loop)
    handle = loop.model[0].register_forward_hook(out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        loop.engine.backward(batch)
    handle.remove()
    loop.engine.backward(batch)


FOREIGN = "is not the noisy gradient"
REFUSED: dict[str, tuple[Callable[[Loop], Any], str]] = {
    "a step without backward": (lambda loop: (first(loop), loop.optimizer.step()), "no private gradient for step 1"),
    "a plain backward": (lambda loop: (plain_backward(loop, first(loop)), loop.optimizer.step()), FOREIGN),
    "a plain backward besides": (lambda loop: plain_backward(loop, backward(loop)), FOREIGN),
    "a gradient that is lost": (lambda loop: (backward(loop), loop.optimizer.zero_grad(), loop.optimizer.step()), "is gone"),
    "a gradient that is replaced": (gradient_replaced, FOREIGN),
    "two steps": (lambda loop: (backward(loop), loop.optimizer.step(), loop.optimizer.step()), "no private gradient for step 2"),
    "a step before any batch": (lambda loop: loop.optimizer.step(), "no private gradient for step 1"),
    "a closure": (lambda loop: (backward(loop), loop.optimizer.step(lambda: torch.zeros(()))), "closure"),
    "a batch that is left out": (batch_left_out, "a batch of step 2 was left out"),
    "a step that is left out": (lambda loop: [loop.engine.backward(batch) for batch in loop.loader], "step 1 was not taken"),
    "a batch that is used twice": (lambda loop: loop.engine.backward(backward(loop)), "used already"),
    "other records": (lambda loop: (first(loop), loop.use(make_data())), "got a batch of 23 rows"),
    "no batch": (lambda loop: loop.use(make_data()), "no batch has been taken"),
    "more steps": (lambda loop: (loop.whole(), loop.optimizer.step()), "all 9 steps of the run are used up"),
    "the loop again": (lambda loop: (loop.whole(), loop.whole()), "those of all 9 steps were delivered"),
    "a record in the middle of a step": (lambda loop: (backward(loop), loop.engine.recorded_run()), "of step 1 was not used"),
    "a record of nothing": (lambda loop: loop.engine.recorded_run(), "no step was executed"),
    "an error in the middle of a batch": (an_error_within, "interrupted within step 1"),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("physical_size", [None, 50])
@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_the_order_is_refused(name: str, physical_size: int | None) -> None:
    """And no parameter moves without a private gradient."""
    loop = Loop(make_network_run(noise_multiplier=1.0, batches={"design": "poisson", "size": 12}), physical_size=physical_size)
    spoil, message = REFUSED[name]
    with pytest.raises(LetheError, match=message):
        spoil(loop)
    if "backward" in name or "gradient" in name:
        assert torch.equal(flat(loop.model), flat(make_network()))


def masking(outputs: Tensor, targets: Tensor, value: int | None = 2) -> Tensor:
    targets[targets == (targets.max() if value is None else value)] = 1
    return CROSS_ENTROPY(outputs, targets)


def test_a_loss_that_writes_into_its_targets_is_exact_or_refused() -> None:
    """What it writes may be written again; what grows each time is not the same batch any more."""
    run, (features, targets) = make_network_run("cyclic"), make_data()
    expected = by_hand(make_network(), (features, targets.where(targets != 2, 1)), run, torch.Generator())
    fitted = fit_network(run, loss=masking, data=(features, targets.clone()))
    torch.testing.assert_close(flat(fitted.model), expected, rtol=0, atol=1e-8)
    with pytest.raises(LetheError, match="the loss of record"):
        fit_network(run, loss=lambda outputs, doubled: (outputs[:, 0] - doubled.mul_(2)).square(), data=(features, targets.double()))
    with pytest.raises(LetheError, match="depends on the other records"):
        fit_network(run, loss=partial(masking, value=None), data=(features, targets.clone()))


class Spoilt(torch.optim.SGD):
    """Puts other gradients in before the step of its class."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        return super().step(closure)


class Failing(torch.optim.SGD):
    """Fails in the middle of its step."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        raise OSError("no space left")


def test_gradients_that_come_in_the_middle_of_a_step_or_after_one_that_failed_are_refused() -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient"):
        Loop(optimizer=lambda parameters: Spoilt(parameters, lr=0.1)).whole()
    loop = Loop(optimizer=lambda parameters: Failing(parameters, lr=0.1))
    with pytest.raises(OSError, match="no space"):
        loop.whole()
    for parameter in loop.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient|no private gradient"):
        loop.optimizer.step()


def in_place(model: Any) -> None:
    with torch.no_grad():
        model[0].weight.add_(1e-6)


def loaded(model: Any) -> None:
    model.load_state_dict({name: tensor / 2 for name, tensor in make_network().state_dict().items()})


@pytest.mark.parametrize("moment", ["before backward", "before the step", "at the end"])
def test_a_change_beside_the_step_is_refused(moment: str) -> None:
    loop = Loop()
    batches = iter(loop.loader)
    loop.use(next(batches))
    batch = next(batches)
    if moment != "before backward":
        loop.engine.backward(batch)
    if moment == "at the end":
        loop.optimizer.step()
    (loaded if moment == "before the step" else in_place)(loop.model)
    next_call = {"before backward": lambda: loop.engine.backward(batch), "before the step": loop.optimizer.step}
    with pytest.raises(HypothesisError, match="changed by something else"):
        next_call.get(moment, loop.engine.recorded_run)()
    assert loop.engine.steps == (2 if moment == "at the end" else 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[3].requires_grad_(True),
        lambda model: model[1].register_parameter("extra", nn.Parameter(torch.ones(3))),
        lambda model: model[0].register_parameter("weight", nn.Parameter(model[0].weight.detach() + 1)),
    ],
)
@pytest.mark.parametrize("noise_drawn", [False, True])
def test_a_model_that_trains_others_than_in_the_beginning_is_refused_before_noise_is_drawn(
    change: Callable[[Any], None], noise_drawn: bool
) -> None:
    """Unfreezing between two epochs, for instance: that is another training, with another engine."""
    model: Any = make_network()
    model[3].requires_grad_(False)
    loop = Loop(model=model, optimizer=lambda parameters: torch.optim.SGD(list(parameters)[:4], lr=0.5))
    if noise_drawn:
        loop.use(next(iter(loop.loader)))
    change(model)
    with pytest.raises(InputError, match="are not those that training began with"):
        loop.use(next(iter(loop.loader)))
    assert loop.engine.steps == int(noise_drawn)
    assert not any(parameter.grad is not None for parameter in model.parameters())


class Codebook(nn.Module):
    """Vectors of which one is overwritten by a raw record at some steps, as where a dead code is started anew."""

    def __init__(self, write: Callable[[nn.Parameter, Tensor], None]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codebook, self.head = nn.Embedding(4, COLUMNS).double(), nn.Linear(COLUMNS, 3).double()
        self.write, self.writes = write, False

    def forward(self, rows: Tensor) -> Tensor:
        if self.writes:
            self.write(self.codebook.weight, rows[0].detach())
        nearest = torch.cdist(rows.detach(), self.codebook.weight.detach()).argmin(1)
        return self.head(rows + self.codebook(nearest))


def by_no_grad(weight: nn.Parameter, row: Tensor) -> None:
    with torch.no_grad():
        weight[2] = row


def by_data(weight: nn.Parameter, row: Tensor) -> None:
    weight.data[2] = row


@pytest.mark.parametrize("isolation", ["checked", "declared"])
@pytest.mark.parametrize("step", [1, 6])
def test_a_record_written_into_a_trained_weight_in_a_batch_is_refused(step: int, isolation: str) -> None:
    """In any step; what writes through .data is seen in checked batches, of which the first is one."""
    for write in (by_no_grad, by_data) if isolation == "checked" and step == 1 else (by_no_grad,):
        model: Any = Codebook(write)
        loop = Loop(model=model, isolation=isolation)
        batches = iter(loop.loader)
        for _ in range(step - 1):
            loop.use(next(batches))
        model.writes = True
        with pytest.raises((HypothesisError, InputError), match=r"codebook\.weight|keeps what it saw|depends on the other records"):
            loop.use(next(batches))
        assert loop.engine.steps == step - 1


@pytest.mark.parametrize("step", [6, 9])
def test_fit_refuses_a_record_written_into_a_trained_weight_in_a_batch(step: int) -> None:
    """In the last step as well."""
    model: Any = Codebook(by_no_grad)

    def progress(done: int, steps: int) -> None:
        model.writes = done == step - 1

    with pytest.raises(HypothesisError, match=rf"codebook\.weight.*in the forward pass or the loss of step {step}"):
        fit_network(make_network_run("cyclic", noise_multiplier=1.0), model, progress=progress)


@pytest.mark.parametrize(("release", "optimizer"), [("all", None), ("all", torch.optim.SGD), ("last", None)])
def test_the_callback_of_fit_may_not_move_parameters_and_they_are_not_saved(tmp_path: Any, release: str, optimizer: Any) -> None:
    run, kept = make_network_run(release=release, noise_multiplier=1.0), Checkpoints(folder=tmp_path, every=3)
    for change in (in_place, None):
        model = make_network()
        own = None if optimizer is None else optimizer(model.parameters(), lr=0.5)
        progress = change is not None and (lambda done, _, model=model: in_place(model) if done == 3 else None)
        with nullcontext() if change is None else pytest.raises(HypothesisError, match="changed by something else"):
            assert fit_network(run, model, optimizer=own, checkpoints=kept, progress=progress).run.total_steps == 9


def test_what_a_loop_changed_is_not_saved(tmp_path: Any) -> None:
    """A checkpoint would carry it over into a training that knows nothing of it."""
    loop = Loop(checkpoints=Checkpoints(folder=tmp_path, every=3), noise_generator=None)
    batches = iter(loop.loader)
    for _ in range(3):
        loop.use(next(batches))
    in_place(loop.model)
    for saving in (loop.engine.save, lambda: next(batches)):
        with pytest.raises(HypothesisError, match="changed by something else"):
            saving()
    loop.engine.close()


def test_parameters_that_share_numbers_are_refused_and_parts_of_one_table_share_nothing() -> None:
    model: Any = make_network()
    model[0].bias.data = model[2].bias.data
    for release in ("all", "last"):
        with pytest.raises(InputError, match="share numbers in memory"):
            fit_network(make_network_run(noise_multiplier=1.0, release=release), model)
    whole = torch.arange(24.0).reshape(4, 6)
    assert sharing_memory({"even": whole[:, ::2], "none": whole[:0]}) == ()
    assert sharing_memory({"row": whole[1], "column": whole[:, 2]}) == ("column", "row")
    assert sharing_memory({"rows": whole[:2], "others": whole[2:], "turned": torch.zeros(3, 2).T}) == ()
    assert sharing_memory({"halves": whole.view(torch.int32), "wholes": whole.view(torch.int64)}) == ("halves", "wholes")
    assert sharing_memory({"repeated": whole[:1].expand(3, 6)}) == ("repeated", "repeated")
    assert sharing_memory({"x": torch.zeros(2, device="meta"), "y": torch.zeros(2, device="meta")}) == ()


def test_one_of_several_processes_that_has_not_joined_the_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_network_run("full", noise_multiplier=1.0, steps=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = make_network()
    own = SGD(model.parameters(), lr=0.5)
    for train in (lambda: fit_network(run, model), lambda: PrivacyEngine(model, own, len, make_data(), run)):
        with pytest.raises(InputError, match="one of 2 processes, and no process group is initialised"):
            train()
    for alone in ("1", "0", "", "many"):
        monkeypatch.setenv("WORLD_SIZE", alone)
        fit_network(run)


@pytest.mark.parametrize("fresh", [None, 0.5])
def test_noise_drowns_by_the_largest_batch_and_by_what_is_drawn_anew(fresh: float | None) -> None:
    """A Poisson batch of 5 may have all 23 records; of correlated noise a share is drawn anew; sums are float64 whatever the model."""
    correlated = None if fresh is None else SimpleNamespace(fresh_share=fresh)
    noise: Any = SimpleNamespace(correlated=correlated, secure=False, add_to=lambda tensors, noise_std: None)
    least = 1024 * torch.finfo(torch.float64).eps * 23 / (1.0 if fresh is None else fresh)
    with pytest.raises(LetheError, match="drowns"):
        NoisySums(make_network_run(noise_multiplier=0.99 * least), noise)(1, {nn.Parameter(torch.zeros(0)): torch.zeros(2).double()})
    NoisySums(make_network_run(noise_multiplier=1.01 * least), noise)(1, {nn.Parameter(torch.zeros(0)): torch.zeros(2).double()})
    single = {"model": make_network(torch.float32), "data": make_data(torch.float32)}
    fit_network(make_network_run(noise_multiplier=1e-5), **single)
    with pytest.raises(LetheError, match="drowns"):
        fit_network(make_network_run(noise_multiplier=1e-14), **single)
    with pytest.raises(LetheError, match="overflowed"):
        fit_network(make_network_run(step_size=1e38, noise_multiplier=100.0, steps=3), **single)

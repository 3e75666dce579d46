"""Parameters that are written to beside the step, or share memory, processes without records, noise that drowns: refused, or exact."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from networks import CLASSES, COLUMNS, Loop, fit_network, flat, make_data, make_network, make_network_run
from processes import Processes
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine
from lethe.train.core.tensors import sharing_memory
from lethe.train.network.steps import NoisySums


def in_place(model: Any) -> None:
    with torch.no_grad():
        model[0].weight.add_(1e-6)


def loaded(model: Any) -> None:
    model.load_state_dict({name: tensor / 2 for name, tensor in make_network().state_dict().items()})


@pytest.mark.parametrize("change", [in_place, loaded])
@pytest.mark.parametrize("moment", ["before backward", "before the step", "at the end"])
def test_a_change_beside_the_step_is_refused(change: Callable[[Any], None], moment: str) -> None:
    loop = Loop()
    batches = iter(loop.loader)
    loop.use(next(batches))
    batch = next(batches)
    if moment != "before backward":
        loop.engine.backward(batch)
    if moment == "at the end":
        loop.optimizer.step()
    change(loop.model)
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

    def trained(change: Callable[[Any], None]) -> Any:
        model = make_network()
        own = None if optimizer is None else optimizer(model.parameters(), lr=0.5)
        progress = lambda done, _: change(model) if done == 3 else None  # noqa: E731
        return fit_network(run, model, optimizer=own, checkpoints=kept, progress=progress)

    with pytest.raises(HypothesisError, match="changed by something else"):
        trained(in_place)
    assert trained(lambda _: None).run.total_steps == 9


def test_what_a_loop_changed_is_not_saved(tmp_path: Any) -> None:
    """A checkpoint would carry it over into a training that knows nothing of it."""
    loop = Loop(checkpoints=Checkpoints(folder=tmp_path, every=3), noise_generator=None)
    batches = iter(loop.loader)
    for _ in range(3):
        loop.use(next(batches))
    in_place(loop.model)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.engine.save()
    with pytest.raises(HypothesisError, match="changed by something else"):
        next(batches)
    loop.engine.close()


def three() -> nn.Sequential:
    return nn.Sequential(nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, CLASSES)).double()


def the_same(model: nn.Sequential) -> None:
    weight: Tensor = model.get_parameter("1.weight")
    weight.data = model.get_parameter("0.weight").data


@pytest.mark.parametrize("release", ["all", "last"])
def test_parameters_that_share_numbers_are_refused(release: str) -> None:
    model = three()
    the_same(model)
    with pytest.raises(InputError, match="share numbers in memory"):
        fit_network(make_network_run(noise_multiplier=1.0, release=release), model)


def test_parts_of_one_table_share_nothing() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    assert sharing_memory({"even": whole[:, ::2], "none": whole[:0]}) == ()
    assert sharing_memory({"row": whole[1], "column": whole[:, 2]}) == ("column", "row")
    assert sharing_memory({"rows": whole[:2], "others": whole[2:], "turned": torch.zeros(3, 2).T}) == ()
    assert sharing_memory({"halves": whole.view(torch.int32), "wholes": whole.view(torch.int64)}) == ("halves", "wholes")
    assert sharing_memory({"repeated": whole[:1].expand(3, 6)}) == ("repeated", "repeated")
    assert sharing_memory({"x": torch.zeros(2, device="meta"), "y": torch.zeros(2, device="meta")}) == ()


def in_single_precision(rank: int, run: Run) -> Tensor:
    model = make_network(torch.float32)
    fit_network(run, model, data=make_data(torch.float32), seed=5)
    return flat(model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
def test_processes_without_records_add_zeros_of_the_right_type(processes: Processes, release: str) -> None:
    """Batches of nominal size 1 among three processes: sums of another type or shape would be mixed up on the way."""
    run = make_network_run("poisson", batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0, release=release)
    (alone,) = processes.run(1, in_single_precision, run)
    for parameters in processes.run(3, in_single_precision, run):
        assert float((parameters - alone).norm()) <= 1e-6 * float(alone.norm())


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


def test_noise_that_drowns_and_parameters_that_overflow_are_refused() -> None:
    data = make_data(torch.float32)
    faint = make_network_run(noise_multiplier=1e-14)
    with pytest.raises(LetheError, match="drowns"):  # in the sums, which are float64
        fit_network(faint, make_network(torch.float32), data=data)
    fit_network(faint.replace(noise_multiplier=1e-5), make_network(torch.float32), data=data)
    with pytest.raises(LetheError, match="overflowed"):
        fit_network(make_network_run(step_size=1e38, noise_multiplier=100.0, steps=3), make_network(torch.float32), data=data)


@pytest.mark.parametrize("fresh", [None, 0.5])
def test_noise_drowns_by_the_largest_batch_and_by_what_is_drawn_anew(fresh: float | None) -> None:
    """A Poisson batch of 5 may have all 23 records; of correlated noise a share is drawn anew."""
    correlated = None if fresh is None else SimpleNamespace(fresh_share=fresh)
    noise: Any = SimpleNamespace(correlated=correlated, secure=False, add_to=lambda tensors, noise_std: None)
    least = 1024 * torch.finfo(torch.float64).eps * 23 / (1.0 if fresh is None else fresh)
    with pytest.raises(LetheError, match="drowns"):
        NoisySums(make_network_run(noise_multiplier=0.99 * least), noise)(1, [torch.zeros(2).double()])
    NoisySums(make_network_run(noise_multiplier=1.01 * least), noise)(1, [torch.zeros(2).double()])


SGD = torch.optim.SGD

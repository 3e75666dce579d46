"""Training that was killed and taken up again: every release is counted, none repeated, no noise used twice; and with nothing else."""

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import as_planned
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupted import DESIGNS, Killed, Spy, make_kept_run, planned_batches, trained
from networks import CROSS_ENTROPY, flat, make_data, make_network
from torch import nn
from torch.utils._pytree import tree_leaves

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import DebiasedMomentum
from lethe.train.checkpoints.file import read_checkpoint


def until_finished(folder: Path, run: Run, kills: list[tuple[int, bool]], every: int, **options: Any) -> tuple[Spy, Any]:
    """Train with kills at so many noises after each start; then to the end."""
    spy = Spy()
    for count, before in kills:
        spy.kill(count, before=before)
        result = trained(folder, run, spy, every=every, **options)
        if result is not None:
            return spy, result
    return spy, trained(folder, run, spy, every=every, **options)


kills_of_a_run = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=20 if by_night() else 3)
@given(name=st.sampled_from([*DESIGNS]), kills=kills_of_a_run, every=st.integers(1, 8))
def test_all_released_no_step_twice_and_every_one_counted(
    tmp_path_factory: pytest.TempPathFactory, name: str, kills: list[tuple[int, bool]], every: int
) -> None:
    run = make_kept_run(name)
    spy, result = until_finished(tmp_path_factory.mktemp("kept"), run, kills, every)
    assert as_planned(result.run) == run
    assert len(set(spy.steps)) == len(spy.steps)
    assert spy.steps == sorted(spy.steps)
    batches = planned_batches(run)
    assert [batches[step - 1] for step in spy.steps] == spy.records
    lost = {int(step) + 1 for step in run.noisy_steps} - set(spy.steps)
    assert len(lost) <= sum(before for _, before in kills)  # counted, and its noise was never drawn
    assert not any(torch.equal(*pair) for pair in combinations(spy.noises, 2))


@settings(max_examples=20 if by_night() else 3)
@given(name=st.sampled_from([*DESIGNS]), kills=kills_of_a_run, every=st.integers(1, 8))
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_last_released_the_chain_is_the_run_s(
    tmp_path_factory: pytest.TempPathFactory, name: str, kills: list[tuple[int, bool]], every: int
) -> None:
    """No gradient reaches a layer of zeros whose inputs are zero: it ends at the sum of the noises of its chain."""
    run = make_kept_run(name, "last")
    models: list[nn.Linear] = []

    def silent() -> nn.Linear:
        models.append(nn.Linear(4, 3, bias=False).double())
        nn.init.zeros_(models[-1].weight)
        return models[-1]

    folder, spy, result = tmp_path_factory.mktemp("kept"), Spy(), None
    data = (torch.zeros(23, 4, dtype=torch.float64), make_data()[1])
    for count, before in [*kills, (99, False)]:
        spy.kill(count, before=before)
        result = trained(folder, run, spy, every=every, model=silent(), data=data)
        if result is not None:
            break
    assert result is not None
    assert as_planned(result.run) == run
    chain = {step: (noise, records) for step, noise, records in zip(spy.steps, spy.noises, spy.records, strict=True)}
    assert sorted(chain) == [int(step) + 1 for step in run.noisy_steps]
    assert all(again <= step + run.steps_per_pass for step, again in zip(spy.steps, spy.steps[1:], strict=False))
    scales = 1.0 if run.pass_weights is not None else -run.step_sizes / run.batch_size  # noise of averages is theirs, else of the sums
    moved = sum(float(np.broadcast_to(scales, run.total_steps)[step - 1]) * noise for step, (noise, _) in chain.items())
    assert torch.allclose(models[-1].weight, moved, rtol=0, atol=1e-13)  # twenty roundings
    batches = planned_batches(run)
    assert all(records == batches[step - 1] for step, records in zip(spy.steps, spy.records, strict=True))
    assert not any(torch.equal(*pair) for pair in combinations(spy.noises, 2))


class Between:
    """Ends the process between two steps: what was computed of the next one is neither noised nor journaled."""

    def __init__(self, after: int) -> None:
        self._after, self._done = after, 0

    def progress(self, step: int, steps: int) -> None:
        self._done = step

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self._done == self._after:
            raise Killed
        return CROSS_ENTROPY(outputs, targets)


def kept_twice(folder: Path, run: Run, model: Any, optimizer: Any, stops: tuple[int, ...], **options: Any) -> tuple[Any, Any]:
    """The same training as a whole, and with a new process after each of the stops; both models."""
    whole = model()
    result = trained(folder / "whole", run, model=whole, optimizer=optimizer(whole), **options)
    assert result is not None
    assert as_planned(result.run) == run
    for after in stops:
        cut, between = model(), Between(after)
        watched = {"progress": between.progress, "loss": between.loss}
        assert trained(folder / "cut", run, model=cut, optimizer=optimizer(cut), **watched, **options) is None
    cut = model()
    result = trained(folder / "cut", run, model=cut, optimizer=optimizer(cut), **options)
    assert result is not None
    assert as_planned(result.run) == run
    return whole, cut


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [*DESIGNS])
@pytest.mark.parametrize("release", ["last", "all"])
def test_without_noise_and_loss_it_is_the_uninterrupted_training_bit_for_bit(tmp_path: Path, name: str, release: str) -> None:
    run = make_kept_run(name, release, noise_multiplier=0.0)
    stops = (3, 9) if run.noise_at == "every_step" else (4, 12)
    whole, cut = kept_twice(tmp_path, run, make_network, lambda model: None, (*stops, 14) if release == "last" else stops)
    assert torch.equal(flat(whole), flat(cut))
    assert not torch.equal(flat(whole), flat(make_network()))


def with_dropout() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(make_network(), nn.Dropout(0.3))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "make"),
    [
        (make_network, lambda parameters: torch.optim.Adam(parameters, lr=0.05)),
        (make_network, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)),
        (with_dropout, lambda parameters: DebiasedMomentum(parameters, lr=0.05)),
    ],
)
def test_the_optimiser_s_state_and_dropout_s_masks_go_on(tmp_path: Path, model: Any, make: Any) -> None:
    run = make_kept_run("shuffled", noise_multiplier=0.0)
    with torch.random.fork_rng():
        whole, cut = kept_twice(tmp_path, run, model, lambda network: make(network.parameters()), (3, 9))
    assert torch.equal(flat(whole), flat(cut))


def test_with_a_seed_no_noise_is_drawn_twice_and_the_batches_go_on(tmp_path: Path) -> None:
    for release in ("all", "last") if by_night() else ("all",):
        run = make_kept_run("random_allocation", release)
        spy, result = until_finished(tmp_path / release, run, [(5, False), (2, True), (1, False)], 4, seed=8, batch_generator=None)
        assert as_planned(result.run) == run
        assert not any(torch.equal(*pair) for pair in combinations(spy.noises, 2))
        uncut = Spy()
        trained(tmp_path / f"{release}-uncut", run, uncut, seed=8, batch_generator=None)
        assert all(uncut.records[step - 1] == records for step, records in zip(spy.steps, spy.records, strict=True))


RUN = make_kept_run("cyclic")


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def shifted(table: torch.Tensor) -> torch.Tensor:
    table[0, 0] += 1e-9
    return table


def grouped(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    return torch.optim.Adam([{"params": others}, {"params": [first]}])


def changed(change: Callable[[Any], object]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        change(model := make_network())
        return model

    return make


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters())


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("other data", {"data": (shifted(make_data()[0]), make_data()[1])}, "some records differ"),
    ("fewer data", {"data": tuple(part[:22] for part in make_data())}, "records: the run says 23"),
    ("other run", {"run": RUN.replace(step_size=0.4)}, "the checkpoint is not of run"),
    ("release last", {"run": RUN.replace(release="last"), "make": lambda model: None}, "the checkpoint is not of run"),
    ("other type", {"model": lambda: make_network(torch.float32), "data": make_data(torch.float32)}, "trained parameters"),
    ("frozen", {"model": changed(lambda model: model[0].requires_grad_(False))}, "trained parameters are not"),
    ("buffers", {"model": changed(lambda model: model.register_buffer("scale", torch.ones(2)))}, "its buffers or frozen parameters"),
    ("no optimiser", {"make": lambda model: None}, "optimizer: the checkpoint has"),
    ("other optimiser", {"make": lambda model: torch.optim.AdamW(model.parameters())}, "optimizer: the checkpoint has"),
    ("other groups", {"make": grouped}, "optimizer: the checkpoint has"),
    ("other order", {"make": lambda model: torch.optim.Adam(reversed(list(model.parameters())))}, "optimizer: the checkpoint has"),
    ("damaged", {"spoil": rewritten("checkpoint.pt", lambda found: found[:-100])}, "it is damaged"),
    ("no checkpoint", {"spoil": lambda folder: (folder / "checkpoint.pt").unlink()}, "7 steps were released"),
    ("no journal", {"spoil": lambda folder: (folder / "journal").unlink()}, "do not belong together"),
    (
        "another journal",
        {"spoil": rewritten("journal", lambda found: re.sub(rb"[0-9a-f]{32}\n", b"0" * 32 + b"\n", found, count=1))},
        "do not belong together",
    ),
    ("journal rolled back", {"spoil": rewritten("journal", lambda found: re.sub(rb"step [567]\n", b"", found))}, "not of one step"),
    ("same noise", {"noise_generator": lambda: np.random.default_rng(11)}, "its noise was used"),
    ("global noise", {"noise_generator": lambda: torch.default_generator}, "PyTorch's global generator"),
    ("its state", {"noise_generator": lambda: torch.Generator().set_state(torch.get_rng_state())}, "PyTorch's global generator"),
    ("noise as batches", {"noise_generator": lambda: torch.Generator().manual_seed(3)}, "the batches go on with"),
)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("change", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_going_on_with_something_else_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder, spy, model = tmp_path / "kept", Spy(), make_network()
    spy.kill(7, before=False)
    assert trained(folder, RUN, spy, model=model, optimizer=adam(model), noise_generator=np.random.default_rng(11)) is None
    change = dict(change)
    if spoil := change.pop("spoil", None):
        spoil(folder)
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    model = change.pop("model", make_network)()
    optimizer = change.pop("make", adam)(model)
    if "noise_generator" in change:
        change["noise_generator"] = change["noise_generator"]()
    before, random = flat(model), torch.get_rng_state()
    with pytest.raises(InputError, match=message):
        trained(folder, change.pop("run", RUN), spy, model=model, optimizer=optimizer, **change)
    assert torch.equal(flat(model), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert optimizer is None or not optimizer.state
    kept.setdefault("journal", b"")  # an empty one is as good as none
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == kept


def test_no_noise_and_no_state_of_its_generator_is_on_disk(tmp_path: Path) -> None:
    spy, generator = Spy(), torch.Generator().manual_seed(99)
    state = generator.get_state().numpy().tobytes()
    spy.kill(7, before=False)
    assert trained(tmp_path, RUN, spy, noise_generator=generator) is None
    now = generator.get_state().numpy().tobytes()
    content = read_checkpoint(tmp_path / "checkpoint.pt")
    found = [leaf.contiguous().numpy().tobytes() for leaf in tree_leaves(content) if isinstance(leaf, torch.Tensor)]
    assert len(found) > 5
    assert not {state, now} & set(found)


BUDGETED = make_kept_run("cyclic", noise_multiplier=2.0, neighbours="replace_one", noise_budget=1.0)
"""A step costs 1/2 of the account of its place: two passes of 4 steps are paid for, of the 5 that are planned."""


@pytest.mark.sampled(9)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("step", [1, 2, 5, 8])
def test_a_budget_counts_what_was_drawn_before_a_kill(tmp_path: Path, step: int, before: bool) -> None:
    spy = Spy()
    spy.kill(step, before=before)
    assert trained(tmp_path, BUDGETED, spy) is None
    result = trained(tmp_path, BUDGETED, spy)
    assert result is not None
    # What was journaled counts, whether its noise was drawn or not.
    assert spy.steps == [number for number in range(1, 9) if not (before and number == step)]
    assert result.run.total_steps == 8
    assert result.spent == pytest.approx(1.0)
    again = trained(tmp_path, BUDGETED, spy)
    assert again is not None
    assert len(spy.steps) == 8 - before
    assert again.run == result.run
    assert again.spent == result.spent
    assert torch.equal(flat(again.model), flat(result.model))

"""A loop of one's own that is looked into, interrupted, killed, and goes on; and what its loader says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from interrupted import Killed, Spy, make_kept_run, planned_batches
from networks import RECORDS, Loop, flat, losses_of, make_data, make_network, make_network_run
from torch.utils.data import DataLoader, Subset, TensorDataset

from lethe.errors import InputError, LetheWarning
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions

SGD = torch.optim.SGD


def looped(folder: Path, run: Run, spy: Spy | None = None, *, every: int = 3, stop: int | None = None, **options: Any) -> Loop:
    """A process: the loop until it ends or is killed, by the spy or in the middle of the step after `stop`."""
    with (spy or Spy()).watching():
        loop = Loop(run, checkpoints=Checkpoints(folder=folder, every=every), noise_generator=None, **options)
        try:
            for batch in loop.loader:
                if loop.engine.steps == stop:
                    raise Killed
                loop.use(batch)
        except Killed:
            loop.engine.close()
    return loop


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ["cyclic", "shuffled", "poisson"])
@pytest.mark.parametrize("before", [False, True])
def test_every_release_is_counted_once(tmp_path: Path, name: str, before: bool) -> None:
    run = make_kept_run(name)
    spy = Spy()
    resumed = []
    for kill in (5, 1, 4):
        spy.kill(kill, before=before)
        resumed.append(looped(tmp_path, run, spy).engine.resumed)
    loop = looped(tmp_path, run, spy)
    assert loop.engine.steps == 20
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    batches = planned_batches(run)
    assert all(records == batches[step - 1] for step, records in zip(spy.steps, spy.records, strict=True))
    assert resumed == [0, 5, 6]
    assert loop.engine.resumed == 10
    assert spy.steps == sorted(set(spy.steps))
    assert set(range(1, 21)) - set(spy.steps) == ({5, 6, 10} if before else set())
    loop.engine.close()
    again = looped(tmp_path, run, spy)
    assert with_fresh_noise(again.engine.recorded_run()) == run
    assert torch.equal(flat(again.model), flat(loop.model))


def test_a_scheduler_goes_on_with_the_optimiser(tmp_path: Path) -> None:
    """It steps after optimizer.step(): a checkpoint that was taken within that call would be one step short of it."""
    run = make_kept_run("poisson", noise_multiplier=0.0)
    ends = []
    for name, stops in (("whole", []), ("cut", [5, 11])):
        for stop in [*stops, None]:
            model = make_network()
            optimizer = SGD(model.parameters(), lr=0.5)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            kept = Checkpoints(folder=tmp_path / name, every=1, also={"scheduler": scheduler})
            loop = Loop(run, model=model, optimizer=lambda _, one=optimizer: one, checkpoints=kept, noise_generator=None)
            for batch in loop.loader:
                if loop.engine.steps == stop:
                    break
                loop.use(batch)
                scheduler.step()
            loop.engine.close()
            if stop is None:
                ends.append(flat(model))
                assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**20)
    assert torch.equal(*ends)


def test_saving_by_hand_between_steps_only(tmp_path: Path) -> None:
    run = make_kept_run("cyclic")
    loop = Loop(run, checkpoints=Checkpoints(folder=tmp_path, every=100), noise_generator=None, physical_size=2)
    for batch in loop.loader:
        with pytest.raises(InputError, match="is under way"):
            loop.engine.save()
        loop.engine.backward(batch)
        loop.optimizer.step()
        if loop.engine.steps == 2:
            loop.engine.save()
            break
    loop.engine.close()
    assert looped(tmp_path, run, stop=2).engine.resumed == 2
    inside = make_kept_run("pass_ends")
    loop = Loop(inside, checkpoints=tmp_path / "ends", noise_generator=None)
    loop.use(next(iter(loop.loader)))
    with pytest.raises(InputError, match="step 1 has no noise of its own"):
        loop.engine.save()
    loop.engine.close()
    with pytest.raises(InputError, match="no folder to save to"):
        Loop(run).engine.save()


class Epochs:
    """A loop over the epochs of a DataLoader, of 5 steps each."""

    def __init__(self, folder: Path | None = None) -> None:
        self.model = make_network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.dataset = TensorDataset(*make_data())
        self.engine = PrivacyEngine(
            self.model,
            self.optimizer,
            losses_of(self.model),
            DataLoader(self.dataset, batch_size=5),
            epsilon=8.0,
            delta=1e-3,
            epochs=2,
            options=TrainOptions(checkpoints=None if folder is None else Checkpoints(folder=folder, every=1)),
        )
        self.loader, self.numbers = self.engine.batches(), self.engine.epochs()

    def use(self, batch: Any) -> None:
        self.engine.backward(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def epoch(self) -> int:
        next(self.numbers, None)
        return sum(self.use(batch) is None for batch in self.loader)


@pytest.mark.parametrize("physical_size", [None, 3])
def test_a_batch_that_was_only_looked_at_is_delivered_again(physical_size: int | None) -> None:
    """A loop that looked at batches is, bit for bit, one that did not: no record meets another step, and none is left out."""
    plain, looked = Loop(physical_size=physical_size), Loop(physical_size=physical_size)
    plain.whole()
    first = next(iter(looked.loader))
    first[0].zero_()  # what is done to what was looked at is nobody's business: it is read anew
    kept = iter(looked.loader)  # an iterator that somebody holds on to
    next(kept)
    for number, batch in enumerate(looked.loader):
        if number == 4:
            break  # as Ctrl-C before the batch is used
        looked.use(batch)
    for batch in looked.loader:
        looked.use(batch)
    assert list(kept) == []
    assert looked.engine.recorded_run() == plain.engine.recorded_run()
    assert torch.equal(flat(looked.model), flat(plain.model))


def test_what_a_loader_says_of_itself() -> None:
    loop, epochs = Loop(), Epochs()
    assert (len(loop.loader), loop.loader.batch_size, len(loop.loader.dataset)) == (9, 5, RECORDS)
    assert (len(epochs.loader), epochs.loader.batch_size) == (10, 5)
    assert next(epochs.numbers) == 0
    assert len(epochs.loader) == 5
    assert epochs.loader.dataset is epochs.dataset
    part = Subset(epochs.dataset, range(20))
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), part, make_network_run(records=20, noise_multiplier=1.0))
    assert engine.batches().dataset is part


def test_epochs_after_a_kill_are_those_left_and_a_schedule_that_begins_again_says_so(tmp_path: Path) -> None:
    loop = Epochs(tmp_path)
    loop.epoch()
    next(loop.numbers)
    next(iter(loop.loader))  # with this the step before is saved
    loop.engine.close()
    again = Epochs(tmp_path)
    assert again.engine.resumed == 5
    torch.optim.lr_scheduler.ExponentialLR(again.optimizer, 0.9)
    with pytest.warns(LetheWarning, match=r"after step 5, and the learning rate's scheduler begins again.*also="):
        assert again.epoch() == 5
    assert next(again.numbers, None) is None

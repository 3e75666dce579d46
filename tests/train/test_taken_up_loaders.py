"""The loader of a loop of one's own in a notebook: looked into, interrupted, iterated over again; and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from networks import RECORDS, flat, make_data, make_network, make_network_run
from private_loops import Loop, losses_of
from torch.utils.data import DataLoader, Subset, TensorDataset

from lethe.errors import InputError, LetheWarning
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions


class Epochs:
    """A loop over the epochs of a DataLoader, of 5 steps each."""

    def __init__(self, folder: Path | None = None, *, scheduled: bool = False) -> None:
        self.model = make_network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9) if scheduled else None
        also = {"scheduler": self.scheduler} if scheduled else {}
        self.dataset = TensorDataset(*make_data())
        self.engine = PrivacyEngine(
            self.model,
            self.optimizer,
            losses_of(self.model),
            DataLoader(self.dataset, batch_size=5),
            epsilon=8.0,
            delta=1e-3,
            epochs=2,
            options=TrainOptions(checkpoints=None if folder is None else Checkpoints(folder=folder, every=1, also=also)),
        )
        self.loader, self.numbers = self.engine.batches(), self.engine.epochs()

    def use(self, batch: Any) -> None:
        self.engine.backward(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.scheduler is not None:
            self.scheduler.step()

    def epoch(self) -> int:
        next(self.numbers, None)
        return sum(self.use(batch) is None for batch in self.loader)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_look_does_not_change_how_long_an_epoch_is() -> None:
    loop = Epochs()
    next(iter(loop.loader))
    assert loop.epoch() == 5
    next(loop.numbers)
    for number, batch in enumerate(loop.loader):  # interrupted at the last batch of the last epoch
        if number == 4:
            break
        loop.use(batch)
    assert loop.epoch() == 1
    assert loop.engine.steps == 10


def test_a_batch_that_the_same_iteration_leaves_out_is_refused_in_words_of_the_way_back() -> None:
    loop = Loop()
    batches = iter(loop.loader)
    loop.use(next(batches))
    next(batches)
    with pytest.raises(InputError, match=r"(?s)a batch of step 2 was left out.*iterate over the loader anew"):
        next(batches)
    loop.whole()
    assert loop.engine.steps == 9


def test_gradients_accumulated_by_a_plain_backward_are_named() -> None:
    loop = Loop()
    (losses_of(loop.model)(next(iter(loop.loader))).mean() / 4).backward()
    with pytest.raises(InputError, match=r"(?s)\d\.\w+: its \.grad is not the noisy.*loss\.backward\(\) never.*physical_size="):
        loop.optimizer.step()


def test_one_epoch_more_names_its_own_way() -> None:
    loop = Epochs()
    for _ in range(2):
        loop.epoch()
    with pytest.raises(InputError, match="more would cost more than was planned") as refused:
        loop.epoch()
    assert "passes()" not in str(refused.value)
    assert "another engine" in str(refused.value)


def test_an_optimiser_of_another_engine_is_refused_at_once() -> None:
    loop = Loop()
    with pytest.raises(InputError, match=r"(?s)belongs to another engine.*close\(\)"):
        PrivacyEngine(loop.model, loop.optimizer, losses_of(loop.model), make_data(), loop.run)
    loop.engine.close()
    PrivacyEngine(loop.model, loop.optimizer, losses_of(loop.model), make_data(), loop.run)


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


def test_a_schedule_that_was_saved_goes_on_without_a_word(tmp_path: Path) -> None:
    for resumed in (0, 5):
        loop = Epochs(tmp_path, scheduled=True)
        assert loop.engine.resumed == resumed
        loop.epoch()
        loop.engine.close()
    assert loop.scheduler is not None
    assert loop.scheduler.last_epoch == 10

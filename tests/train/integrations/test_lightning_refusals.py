"""What Lightning's Trainer, its callbacks and modules ask for and private training does not take."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning_modules import DELTA, RECORDS, Classifier, data, fitted, left_as_it_was, loader, run_of, trainer
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lethe.errors import InputError
from lethe.integrations.lightning import PrivateTraining


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with left_as_it_was():
        yield


def private(**changes: Any) -> PrivateTraining:
    return PrivateTraining(**{"run": run_of(), "delta": DELTA, **changes})


class ByHand(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Moving(Classifier):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class Backward(Classifier):
    def backward(self, loss: torch.Tensor) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss.backward()


class Iterating(Classifier):
    def training_step(self, dataloader_iter: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return next(dataloader_iter)


class Two(Classifier):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=0.1), torch.optim.SGD(self.parameters(), lr=0.1)]


class Without(Classifier):
    def configure_optimizers(self) -> Any:
        return None


class Following(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "train_loss"}}


class Odd(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)[:1].expand(2)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16-true"}, "precision: got bf16-true.*"),
        ({"fast_dev_run": True}, "fast_dev_run: got 1|fast_dev_run: got True"),
        ({"overfit_batches": 2}, "overfit_batches: got 2"),
        ({"limit_train_batches": 1}, "limit_train_batches: got 1,"),
        ({"limit_train_batches": 0.5}, "limit_train_batches: got 0.5"),
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs: got 1"),
        ({"max_epochs": -1}, "max_epochs: got -1, max_steps: -1"),
        ({"max_epochs": 3}, "max_steps: the Trainer takes 15 steps; the run says 10"),
        ({"accumulate_grad_batches": 3}, "accumulate_grad_batches: got 3; the run says 5 records a step"),
        ({"callbacks": GradientAccumulationScheduler({0: 1})}, "callbacks: got GradientAccumulationScheduler"),
        ({"callbacks": LearningRateFinder()}, "callbacks: got LearningRateFinder"),
        ({"callbacks": StochasticWeightAveraging(0.1)}, "callbacks: got StochasticWeightAveraging"),
        ({"callbacks": EMAWeightAveraging()}, r"(?s)callbacks: got EMAWeightAveraging.*PrivateTraining\(ema=0\.999\)"),
    ],
)
def test_trainers_are_refused(options: dict[str, Any], message: str) -> None:
    others = [options.pop("callbacks")] if "callbacks" in options else []
    module = Classifier()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(InputError, match=message):
        trainer(private(), *others, **options).fit(module, loader())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("make", "records", "message"),
    [
        (ByHand, loader, "automatic_optimization: got False"),
        (Moving, loader, "on_after_batch_transfer: got a method of Moving"),
        (Backward, loader, "backward: got a method of Backward"),
        (Iterating, loader, "training_step: got dataloader_iter"),
        (Without, loader, "configure_optimizers: returns none"),
        (Two, loader, "configure_optimizers: got 2 optimisers|multiple optimizers"),
        (Odd, lambda: DataLoader(TensorDataset(*data()), batch_size=5), r"training_step: gives a loss of shape \(2,\)|shape"),
        (Classifier, lambda: [loader(), loader()], "train_dataloaders: got list"),
        (Classifier, lambda: DataLoader(Endless()), "Endless, which is a stream"),
        (Classifier, lambda: DataLoader(TensorDataset(*data()), batch_sampler=[[0, 1]]), "batches of its own"),
        (Classifier, lambda: DataLoader(TensorDataset(*(part[:-1] for part in data()))), "22"),
        (Classifier, lambda: DataLoader([(torch.ones(2), "text")] * RECORDS), "needs a tensor|text"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_modules_and_records_are_refused(make: Any, records: Any, message: str) -> None:
    error = InputError if make is not Two else (InputError, RuntimeError)
    with pytest.raises(error, match=message):
        fitted(make(), private(), records())


def test_nothing_is_chosen_by_the_private_loss() -> None:
    with pytest.raises(InputError, match="monitor: got train_loss, of ModelCheckpoint"):
        trainer(private(log_private=True), ModelCheckpoint(monitor="train_loss"), enable_checkpointing=True).fit(Classifier(), loader())
    with pytest.raises(InputError, match="lr_scheduler: got ReduceLROnPlateau"):
        fitted(Following(), private(log_private=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 3.0}, "delta: none was given"),
        ({"delta": DELTA}, "epsilon: got None, run: none"),
        ({"epsilon": 3.0, "run": run_of(), "delta": DELTA}, "epsilon: got 3.0, run: a run"),
        ({"epsilon": 3.0, "delta": DELTA, "checkpoints": 3}, "checkpoints: got 3"),
        ({"epsilon": -1.0, "delta": DELTA, "clip_norm": 1.0}, "epsilon = -1.0"),
        ({"epsilon": 3.0, "delta": 2.0, "clip_norm": 1.0}, "delta = 2.0"),
        ({"epsilon": 3.0, "delta": DELTA, "clip_norm": 1.0, "views": 0}, "views = 0"),
        ({"epsilon": 3.0, "delta": DELTA, "clip_norm": 0.0}, "clip_norm = 0"),
        ({"epsilon": 3.0, "delta": DELTA, "epochs": 3}, r"(?s)epochs: PrivateTraining takes no.*Trainer\(max_epochs="),
        ({"delta": DELTA, "noise_multiplier": 1.0}, r"(?s)noise_multiplier: .*run=lethe\.Run"),
    ],
)
def test_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PrivateTraining(**arguments)


def test_arguments_that_contradict_the_run_are_refused_when_training_begins() -> None:
    with pytest.raises(InputError, match=r"clip_norm: got 3\.0; the run says 0\.4"):
        fitted(Classifier(), private(clip_norm=3.0))
    with pytest.raises(InputError, match="clip_norm: none was given"):
        fitted(Classifier(), PrivateTraining(epsilon=1.0, delta=DELTA))
    with pytest.raises(InputError, match=r"delta: got 0\.5; with 23 records"):
        fitted(Classifier(), private(delta=0.5))
    for asked in (private().record, lambda: private().certificate_, lambda: private().run):
        with pytest.raises(InputError, match="there is none before training"):
            asked()


class OneOutput(Classifier):
    """Losses of shape (B, 1), as a network of two classes has them."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)[:, None]


def test_losses_of_one_output_are_taken() -> None:
    trains = private()
    fitted(OneOutput(), trains)
    assert trains.record().run.total_steps == 10

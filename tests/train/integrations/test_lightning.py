"""PrivateTraining in Lightning's loop: the numbers of a loop of one's own, bit for bit; its counts, views, averages, logs and ends."""

import subprocess
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

from doors import arguments
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning_modules import DELTA, Classifier, Dicts, Plain, by_hand, data, dict_loader, fitted, flat, loader, network, run_of, trainer
from repository import ROOT
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import lethe
from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.integrations.lightning import PrivateTraining
from lethe.train import fit
from lethe.train.data.map_style import MapStyleSource


def private(**changes: Any) -> PrivateTraining:
    return PrivateTraining(**{"run": run_of(), "delta": DELTA, "seed": 5, **changes})


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("make", "records", "options", "physical_size", "changes"),
    [
        (Classifier, loader, {}, 5, {}),
        (Classifier, lambda: loader(2), {}, 2, {}),
        (Dicts, dict_loader, {}, 5, {}),
        (Classifier, loader, {"gradient_clip_val": 0.05}, 5, {"clip": 0.05}),
        (Classifier, loader, {"precision": "bf16-mixed"}, 5, {"autocast": True}),
    ],
    ids=["tuples", "micro-batches", "dicts", "noisy gradient clipped", "bf16"],
)
def test_the_steps_are_those_of_a_loop_of_ones_own_bit_for_bit(
    make: Any, records: Any, options: dict[str, Any], physical_size: int, changes: dict[str, Any]
) -> None:
    module, callback = make(), private()
    made = fitted(module, callback, records(), **options)
    assert torch.equal(flat(module), by_hand(run_of(), physical_size=physical_size, **changes))
    assert made.global_step == 10
    assert callback.run.replace(seeded=False) == run_of()


def test_the_run_is_that_of_the_trainers_numbers_and_noise_is_fresh() -> None:
    def trained(**target: Any) -> tuple[Classifier, PrivateTraining, Any]:
        module, callback = Classifier(), PrivateTraining(delta=DELTA, **target)
        return module, callback, fitted(module, callback, loader(3), max_epochs=3, accumulate_grad_batches=2)

    module, callback, made = trained(epsilon=3.0, clip_norm=0.4)
    other, _, _ = trained(run=callback.run)
    steps = 3 * 4  # ceil(ceil(23 / 3) / 2) an epoch
    assert callback.run.total_steps == made.global_step == steps
    assert callback.run.batches == lethe.batches.RandomAllocation(6)
    assert made.accumulate_grad_batches == 2  # as it was
    certificate = callback.certificate_
    assert 2.9 < certificate.epsilon <= 3.0
    assert certificate.epsilon == lethe.certify(callback.run, DELTA).epsilon
    assert made.lr_scheduler_configs[0].scheduler.last_epoch == steps  # once a logical step
    assert not torch.allclose(flat(module), flat(other))
    assert lethe.verify(certificate, weights=module.state_dict()).yes


class Augmented(Dataset[Any]):
    """Each record is read as it is, and the other way round, in turns: any two reads one after the other are both views.

    What is added is next to nothing, and random, as augmentation is."""

    def __init__(self) -> None:
        self.features, self.labels = data()
        self.reads = [0] * len(self)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        self.reads[place] += 1
        view = self.features[place].flip(0) if self.reads[place] % 2 else self.features[place]
        return view + 1e-8 * torch.rand(len(view)), self.labels[place]


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_views_and_the_average_are_those_of_fit(reduction: str) -> None:
    """One gradient of the mean loss of both views, clipped once; and the average of the same iterates."""
    run = run_of(batches=lethe.batches.Cyclic(5), steps=8, step_size=0.1, noise_multiplier=0.0, neighbours="zero_out")
    given: dict[str, Any] = {"views": 2, "ema": 0.9}
    callback, module = PrivateTraining(run=run, delta=DELTA, **given), Plain(reduction)
    assert callback.averaged is None
    fitted(module, callback, DataLoader(Augmented(), batch_size=2), max_epochs=-1, max_steps=8)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = fit(model, nn.CrossEntropyLoss(reduction="none"), MapStyleSource(Augmented()), run, optimizer=optimizer, **arguments(given))
    torch.testing.assert_close(flat(module), flat(expected.model), rtol=0, atol=1e-6)
    assert (flat(module) - flat(network())).abs().max() > 1e-2
    averaged = Classifier()
    assert callback.averaged is not None
    averaged.load_state_dict(callback.averaged)
    assert expected.averaged is not None
    model.load_state_dict(expected.averaged)
    torch.testing.assert_close(flat(averaged), flat(model), rtol=0, atol=1e-6)
    assert [one.name for one in callback.record().released] == ["model", "moving average"]


class Logging(Classifier):
    """Logs its loss, as most do; and has a validation, which is public."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        losses = super().training_step(batch, batch_idx)
        self.log("loss", losses.mean(), prog_bar=True)
        self.log_dict({"two": 2.0})
        return losses

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))


class Heard(Callback):
    """What was logged at each step."""

    def __init__(self) -> None:
        self.epsilons: list[float] = []
        self.names: set[str] = set()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.names |= set(trainer.callback_metrics)
        if "epsilon" in trainer.callback_metrics:
            self.epsilons.append(float(trainer.callback_metrics["epsilon"]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("log_private", [False, True])
def test_epsilon_is_logged_and_what_is_private_only_if_asked_for(log_private: bool) -> None:
    heard, callback = Heard(), PrivateTraining(run=run_of(), delta=DELTA, log_private=log_private)
    made = trainer(callback, heard, log_every_n_steps=1)
    with pytest.warns(LetheWarning, match="training_step logs loss") as said:
        made.fit(Logging(), loader(), DataLoader(TensorDataset(*data()), batch_size=23))
    assert len([one for one in said if "training_step logs" in str(one.message)]) == 1
    assert heard.names == {"epsilon", "val_loss", *(["train_loss"] if log_private else [])}
    expected = [lethe.certify(run_of(steps=steps), DELTA).epsilon for steps in range(1, 10)]
    assert heard.epsilons == pytest.approx(expected, rel=1e-6)


def test_a_training_that_ends_early_is_certified_for_the_whole_plan() -> None:
    stopping = EarlyStopping("val_loss", divergence_threshold=-1.0)
    callback = PrivateTraining(run=run_of(), delta=DELTA)
    made = trainer(callback, stopping)
    with pytest.warns(LetheWarning):
        made.fit(Logging(), loader(), DataLoader(TensorDataset(*data()), batch_size=23))
    assert made.global_step == 5
    assert callback.run.total_steps == 10
    assert callback.certificate_.epsilon == lethe.certify(run_of(), DELTA).epsilon


def test_everything_is_as_it_was_afterwards() -> None:
    module, callback = Classifier("mean"), private()
    with pytest.warns(RecordByRecordWarning):
        made = fitted(module, callback)
    assert not {"training_step", "backward", "log", "log_dict", "configure_gradient_clipping"} & set(vars(module))
    optimizer = made.optimizers[0]
    before = flat(module)
    module.training_step(data(), 0).backward()
    optimizer.step()
    assert not torch.equal(before, flat(module))
    with pytest.raises(InputError, match="this one has trained"):
        fitted(Classifier(), callback)


class Weighted(Classifier):
    """A mean with weights of classes, which is divided by those of the whole batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1], weight=torch.tensor([1.0, 3.0, 9.0]))


def test_a_mean_that_is_none_of_records_is_taken_of_each_alone() -> None:
    callback = private()
    with pytest.warns(RecordByRecordWarning, match="one number for its batch"):
        fitted(Weighted(), callback)
    assert callback.engine is not None
    assert "fast" not in str(callback.engine.diagnostics)


OTHER = """
import sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning
import lethe, torch
from lethe.integrations.lightning import PrivateTraining
assert "lightning.pytorch" not in sys.modules and issubclass(PrivateTraining, pytorch_lightning.Callback)
class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1], reduction="none")
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
private = PrivateTraining(epsilon=3.0, delta=1e-3, clip_norm=1.0)
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.arange(40) % 3)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = pytorch_lightning.Trainer(max_epochs=2, callbacks=[private], accelerator="cpu", devices=1, **quiet)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
print(trainer.global_step, private.certificate_.epsilon <= 3.0)
"""


@pytest.mark.nightly(by_day="test_the_run_is_that_of_the_trainers_numbers_and_noise_is_fresh")
def test_with_pytorch_lightning_it_is_the_same() -> None:
    pytest.importorskip("pytorch_lightning")
    done = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["10", "True"]

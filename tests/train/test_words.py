"""`fit` in the words that people bring, and with every kind of model: the run that they stand for, and what comes back."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, RECORDS, fit_network, flat, make_data, make_network, make_network_run
from problems import make_problem, make_run
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.calculus.filters import Odometer
from lethe.certificates.records import TrainingRecord
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run
from lethe.train import Callback, Checkpoints, Fitted, Head, Linear, TrainOptions, fit
from lethe.train.callbacks.progress import ProgressBar
from lethe.train.linear.models import LinearPredictor
from lethe.train.planning import Words, planned

DELTA = 1e-3
WORDS: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA, "epochs": 3, "batch_size": 6}


def test_the_words_are_a_run_and_the_certificate_is_theirs() -> None:
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS)
    run = fitted.run
    assert (run.records, run.batches, run.total_steps) == (RECORDS, lethe.batches.Poisson(6), 12)
    assert (run.release, run.neighbours, run.clip_norm, run.step_size) == ("all", "add_or_remove", 1.0, 1e-3)
    planned = lethe.plan(run.replace(noise_multiplier=None), epsilon=3.0, delta=DELTA)
    assert run.noise_multiplier == planned.noise_multiplier
    assert fitted.epsilon == fitted.certificate.epsilon == lethe.certify(fitted, DELTA).epsilon == pytest.approx(3.0, rel=1e-6)
    assert fitted.epsilon <= 3.0
    assert str(fitted.certificate) in str(fitted)
    assert "without its mean" not in str(fitted)
    assert "without its mean" in str(fit(make_network(), nn.CrossEntropyLoss(), make_data(), **WORDS))


def test_a_loader_says_how_large_batches_are() -> None:
    words = {name: value for name, value in WORDS.items() if name != "batch_size"}
    loader: DataLoader[Any] = DataLoader(TensorDataset(*make_data()), batch_size=6, shuffle=True)
    assert fit(make_network(), CROSS_ENTROPY, loader, **words).run.batches == lethe.batches.Poisson(6)


@pytest.mark.parametrize("name", ["AdamW", "sgd"])
def test_an_optimiser_by_name_is_the_one_of_pytorch(name: str) -> None:
    run, ends = make_network_run(noise_multiplier=1.0), []
    for own in (False, True):
        model = make_network()
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name.lower()]
        given: dict[str, Any] = {"optimizer": kind(model.parameters(), lr=0.05)} if own else {"optimizer": name, "lr": 0.05}
        fit(model, CROSS_ENTROPY, make_data(), run, **given, options=TrainOptions(seed=1))
        ends.append(flat(model))
    assert torch.equal(*ends)


@pytest.mark.parametrize("schedule", ["cosine", "linear", lambda own: torch.optim.lr_scheduler.StepLR(own, 2, 0.5)])
def test_a_learning_rate_schedule_is_stepped_once_a_step_and_saved(schedule: Any, tmp_path: Path) -> None:
    """Also of a training that is killed and goes on, by the rates that plain SGD was given."""

    def rates(folder: Path | None, stop: int | None = None) -> list[float]:
        model, seen = make_network(), list[float]()
        own = torch.optim.SGD(model.parameters(), lr=0.5)

        def note(step: int, steps: int) -> None:
            if step == stop:
                raise KeyboardInterrupt

        own.register_step_post_hook(lambda *_: seen.append(own.param_groups[0]["lr"]))
        kept = None if folder is None else Checkpoints(folder=folder, every=1)
        options = TrainOptions(lr_scheduler=schedule, checkpoints=kept, progress=note)
        with suppress(KeyboardInterrupt):
            fit(model, CROSS_ENTROPY, make_data(), make_network_run("cyclic", noise_multiplier=1.0), optimizer=own, options=options)
        return seen

    whole = rates(None)
    assert len(set(whole)) > 3
    assert whole[0] == 0.5
    first = rates(tmp_path, stop=5)
    assert first == whole[:5]
    rest = rates(tmp_path)
    assert rest == whole[-len(rest) :]


class TestValidation:
    """Losses of public records after each epoch, and a training that they end."""

    @staticmethod
    def trained(patience: int | None, **options: Any) -> Any:
        public = make_data(seed=5)
        model = make_network()
        given = TrainOptions(validation_data=public, patience=patience, **options)
        return fit(model, CROSS_ENTROPY, make_data(), **{**WORDS, "epochs": 8}, optimizer="sgd", lr=5.0, options=given)

    def test_losses_are_those_of_the_model_in_eval_mode(self) -> None:
        fitted = self.trained(None, physical_size=7)
        features, targets = make_data(seed=5)
        expected = float(CROSS_ENTROPY(fitted.model.eval()(features), targets).detach().mean())
        assert len(fitted.validation_losses) == 8
        assert fitted.validation_losses[-1] == pytest.approx(expected, rel=1e-6)

    def test_a_training_that_they_end_is_certified_for_the_whole_plan(self) -> None:
        fitted = next(early for _ in range(9) if len((early := self.trained(1)).validation_losses) < 8)
        losses = fitted.validation_losses
        assert losses[-1] >= min(losses[:-1])
        assert fitted.diagnostics.steps == 4 * len(losses) < fitted.run.total_steps == 32
        assert fitted.epsilon == pytest.approx(3.0, rel=1e-6)
        assert "the validation data, which may have ended training, are public" in fitted.declared

    def test_a_training_that_ended_early_is_not_taken_up_again(self, tmp_path: Path) -> None:
        tried = ((self.trained(1, checkpoints=tmp_path / str(number)), tmp_path / str(number)) for number in range(9))
        first, folder = next((early, kept) for early, kept in tried if len(early.validation_losses) < 8)
        again = self.trained(1, checkpoints=folder)
        assert again.validation_losses == first.validation_losses
        assert torch.equal(flat(again.model), flat(first.model))
        assert again.run == first.run

    def test_what_it_cannot_use_is_refused(self) -> None:
        last = make_network_run("cyclic", noise_multiplier=1.0, release="last")
        with pytest.raises(HypothesisError, match="validation_data"):
            fit_network(last, validation_data=make_data())
        with pytest.raises(InputError, match="patience: got 2, and no validation data"):
            fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS, options=TrainOptions(patience=2))
        narrow = make_data()[0][:, :2], make_data()[1]
        model = make_network()
        with pytest.raises(InputError, match="validation_data: they do not go through"):
            fit(model, CROSS_ENTROPY, make_data(), **WORDS, options=TrainOptions(validation_data=narrow))
        assert torch.equal(flat(model), flat(make_network()))

    def test_under_a_budget_the_budget_is_certified_wherever_it_ends(self) -> None:
        run = make_network_run(noise_multiplier=None, noise_budget=3.0, steps=40)
        given = TrainOptions(validation_data=make_data(seed=5), patience=1, noise_policy=lambda seen: 8.0)
        fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, options=given)
        assert fitted.run.total_steps == fitted.diagnostics.steps
        assert lethe.certify(fitted, DELTA).epsilon >= lethe.guarantees.ZCDP(3.0).epsilon(DELTA)


def test_a_linear_model_takes_the_words_and_the_step_size() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    loss = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")
    fitted = fit(Linear(classes=3), loss, (rows, np.arange(60) % 3), **WORDS, lr=0.5)
    assert (fitted.run.step_size, fitted.run.clip_norm, fitted.run.loss) == (0.5, None, loss)
    assert fitted.epsilon == pytest.approx(3.0, rel=1e-6)
    for wrong, said in (({"optimizer": "sgd", "lr": 0.5}, "optimizer: a Linear"), ({}, "lr: got None, and no run")):
        with pytest.raises(InputError, match=said):
            fit(Linear(classes=3), loss, (rows, np.arange(60) % 3), **WORDS, **wrong)


def test_a_run_has_no_delta() -> None:
    fitted = fit_network(make_network_run(noise_multiplier=1.0))
    with pytest.raises(InputError, match=r"(?s)certificate: this training was planned by a run.*lethe\.certify\(fitted, delta=1e-5\)"):
        _ = fitted.certificate


def test_a_bar_shows_the_loss_and_epsilon_and_is_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", terminal)
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS)
    assert "loss" in terminal.getvalue()
    assert "epsilon 3" in terminal.getvalue()
    quiet = len(terminal.getvalue())
    other = fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS, options=TrainOptions(progress=False))
    assert len(terminal.getvalue()) == quiet
    assert fitted.declared == other.declared
    assert isinstance(ProgressBar(), Callback)


def test_a_batch_size_is_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.planning.plan", lambda run, *target, **options: run.replace(noise_multiplier=1.0))
    alone = planned(None, Words(3.0, DELTA, 3, 6), make_data())
    monkeypatch.setattr("lethe.train.planning.Workers.current", lambda: SimpleNamespace(world_size=2))
    both = planned(None, Words(3.0, DELTA, 3, 3), make_data())
    assert (both.run, both.steps_per_epoch) == (alone.run, alone.steps_per_epoch)


KIND = "softmax_regression"
PROBLEM = make_problem(KIND)
TABLE = PROBLEM.features, PROBLEM.targets


def make_head() -> Head:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Head(nn.Identity(), nn.Linear(4, 3, bias=False).double())


def through(model: Any, run: Run | None = None, loss: Any = None, **options: Any) -> Fitted[Any]:
    """A training of each kind by the door itself."""
    if isinstance(model, nn.Module):
        run = make_network_run(noise_multiplier=1.0) if run is None else run
        return fit(model, CROSS_ENTROPY if loss is None else loss, make_data(), run, **arguments(options))
    data = TABLE if isinstance(model, Linear) else tuple(torch.tensor(part) for part in TABLE)
    return fit(model, loss, data, make_run(release="all") if run is None else run, **arguments(options))


def test_all_come_out_alike() -> None:
    """The same fields, of which a budget fills the same ones, whatever was linear_trained."""
    budget: dict[str, Any] = {
        "noise_budget": 1.0,
        "release": "all",
        "neighbours": "replace_one",
        "batches": {"design": "cyclic", "size": 5},
    }
    found = {
        "module": through(make_network(), make_network_run(noise_multiplier=2.0, **{**budget, "neighbours": "replace_one"})),
        "linear": through(Linear(classes=3), make_run(**budget)),
        "head": through(make_head(), make_run(**budget)),
    }
    for fitted in found.values():
        assert isinstance(fitted, Fitted)
        assert fitted.diagnostics.steps > 0
        assert fitted.diagnostics.records == 23
        assert fitted.diagnostics.left_over == 3
        assert fitted.odometer == Odometer.up_to(1.0)
        assert fitted.spent is not None
        assert 0.5 < fitted.spent <= 1.0 + 1e-9
        assert fitted.checked
        assert isinstance(fitted.declared, tuple)
        assert not fitted.run.seeded
        assert isinstance(fitted.record, TrainingRecord)
        assert fitted.record.run == fitted.run
        assert lethe.certify(fitted, 1e-5).epsilon < np.inf
    assert isinstance(found["module"].model, nn.Sequential)
    assert isinstance(found["linear"].model, LinearPredictor)
    assert (found["linear"].model.classes, found["linear"].model.loss.kind) == (3, KIND)
    assert found["head"].model(torch.tensor(TABLE[0])).shape == (23, 3)


RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
REAL = FEATURES[:, :1] + 0.1


def linear_trained(loss: Any, targets: Tensor, outputs: int, **options: Any) -> Tensor:
    """The parameters after a seeded training of a linear model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(COLUMNS, outputs).double()
    return flat(fit(model, loss, (FEATURES, targets), RUN, **arguments({"seed": 0, **options})).model)


def each(kind: Any, **options: Any) -> Any:
    """The loss of a record by a class of PyTorch's, the mean over its own numbers."""
    plain = kind(reduction="none", **options)
    return lambda outputs, wanted: plain(outputs, wanted).reshape(len(outputs), -1).mean(1)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
MEANS: dict[str, tuple[Any, Any, Tensor, int]] = {
    "cross entropy": (nn.CrossEntropyLoss(), each(nn.CrossEntropyLoss), LABELS, CLASSES),
    "with weights of classes": (nn.CrossEntropyLoss(weight=WEIGHTS), each(nn.CrossEntropyLoss, weight=WEIGHTS), LABELS, CLASSES),
    "its function": (functional.cross_entropy, each(nn.CrossEntropyLoss), LABELS, CLASSES),
    "of several numbers": (nn.MSELoss(), each(nn.MSELoss), FEATURES[:, :2].contiguous(), 2),
    "of one number": (nn.HuberLoss(), each(nn.HuberLoss), REAL, 1),
    "one a record": (nn.BCEWithLogitsLoss(reduction="none"), each(nn.BCEWithLogitsLoss), REAL.sigmoid(), 1),
}


@pytest.mark.parametrize("options", [{}, {"physical_size": 1}, {"physical_size": 4}])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_of_pytorch_s_own_is_each_record_s(name: str, options: dict[str, Any]) -> None:
    mean, own, targets, outputs = MEANS[name]
    torch.testing.assert_close(
        linear_trained(mean, targets, outputs, **options), linear_trained(own, targets, outputs, **options), rtol=0, atol=1e-14
    )
    assert getattr(mean, "reduction", "mean") in ("mean", "none")  # the user's own is as it was

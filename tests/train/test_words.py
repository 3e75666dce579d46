"""`fit` in the words that people bring, and with every kind of model: the run that they stand for, and what comes back."""

import io
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, RECORDS, flat, make_data, make_network, make_network_run
from problems import make_problem, make_run
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.calculus.filters import Odometer
from lethe.errors import InputError, LetheError
from lethe.train import Callback, Checkpoints, Fitted, Head, Linear, TrainOptions, fit
from lethe.train.callbacks.progress import ProgressBar
from lethe.train.linear.models import LinearPredictor
from lethe.train.planning import Words, planned

DELTA = 1e-3
SOFTMAX = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")
ROWS = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
WORDS: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA, "epochs": 3, "batch_size": 6}


def test_the_words_are_a_run_and_the_certificate_is_theirs() -> None:
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS)
    run = fitted.run
    assert (run.records, run.batches, run.total_steps) == (RECORDS, lethe.batches.RandomAllocation(6), 12)
    assert (run.release, run.neighbours, run.clip_norm, run.step_size) == ("all", "add_or_remove", 0.1, 0.05)
    planned = lethe.plan(run.replace(noise_multiplier=None), epsilon=3.0, delta=DELTA)
    assert run.noise_multiplier == planned.noise_multiplier
    assert fitted.epsilon == fitted.certificate.epsilon == lethe.certify(fitted, DELTA).epsilon == pytest.approx(3.0, rel=1e-6)
    assert fitted.epsilon <= 3.0
    assert str(fitted.certificate) in str(fitted)
    assert "without its mean" not in str(fitted)
    words = {name: value for name, value in WORDS.items() if name != "batch_size"}  # which the loader says
    by_loader = fit(make_network(), nn.CrossEntropyLoss(), DataLoader(TensorDataset(*make_data()), batch_size=6, shuffle=True), **words)
    assert by_loader.run.batches == run.batches
    assert "without its mean" in str(by_loader)


def test_what_is_left_out_is_chosen_from_public_numbers_and_said() -> None:
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), epsilon=3.0, delta=DELTA)
    assert fitted.settings == {"epochs": 20, "batch_size": 2, "clip_norm": 0.1, "lr": 0.05}
    assert "settings  epochs 20, batch_size 2, clip_norm 0.1, lr 0.05: of records" in str(fitted)
    assert (fitted.run.total_steps, fitted.run.step_size, fitted.epsilon) == (240, 0.05, pytest.approx(3.0, rel=1e-6))
    other = make_data()[0] * 3.0, make_data()[1]
    assert fit(make_network(), CROSS_ENTROPY, other, epsilon=3.0, delta=DELTA).run == fitted.run  # of other records, as many


def test_what_is_given_is_not_chosen() -> None:
    """By number, by the loader, by the name of the optimiser; a chosen rate falls to 0, and no other does."""
    given = fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS, clip_norm=0.5, lr=0.01)
    assert not given.settings
    assert "settings" not in str(given)
    rates, step = list[list[float]](), torch.optim.AdamW.step

    def seen(own: Any, *given: Any) -> Any:
        rates[-1].append(own.param_groups[0]["lr"])
        return step(own, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.optim.AdamW, "step", seen)
        for words, chosen in (({"optimizer": "adamw"}, {"clip_norm"}), ({"lr": 0.01}, {"clip_norm"}), ({}, {"clip_norm", "lr"})):
            rates.append([])
            assert set(fit(make_network(), CROSS_ENTROPY, make_data(), **WORDS, **words).settings) == chosen
    assert [set(constant) for constant in rates[:2]] == [{1e-3}, {0.01}]
    assert rates[2] == pytest.approx([0.05 * (1 - step / 12) for step in range(12)])


@pytest.mark.parametrize("name", ["AdamW", "sgd"])
def test_an_optimiser_by_name_is_the_one_of_pytorch(name: str) -> None:
    run, ends = make_network_run(noise_multiplier=1.0), []
    for own in (None, {"AdamW": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]):
        model = make_network()
        given: dict[str, Any] = {"optimizer": name, "lr": 0.05} if own is None else {"optimizer": own(model.parameters(), lr=0.05)}
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


def validated(patience: int | None, **options: Any) -> Any:
    """A training with the losses of public records after each of 8 epochs."""
    given = TrainOptions(validation_data=make_data(seed=5), patience=patience, **options)
    return fit(make_network(), CROSS_ENTROPY, make_data(), **{**WORDS, "epochs": 8}, optimizer="sgd", lr=5.0, options=given)


def test_losses_of_validation_are_those_of_the_model_in_eval_mode() -> None:
    fitted, (features, targets) = validated(None, physical_size=7), make_data(seed=5)
    expected = float(CROSS_ENTROPY(fitted.model.eval()(features), targets).detach().mean())
    assert len(fitted.validation_losses) == 8
    assert fitted.validation_losses[-1] == pytest.approx(expected, rel=1e-6)


def test_a_training_that_validation_ends_is_certified_for_the_whole_plan_and_not_taken_up_again(tmp_path: Path) -> None:
    tried = ((validated(1, checkpoints=tmp_path / str(number)), tmp_path / str(number)) for number in range(9))
    fitted, folder = next((early, kept) for early, kept in tried if len(early.validation_losses) < 8)
    losses = fitted.validation_losses
    assert losses[-1] >= min(losses[:-1])
    assert fitted.diagnostics.steps == 4 * len(losses) < fitted.run.total_steps == 32
    assert fitted.epsilon == pytest.approx(3.0, rel=1e-6)
    assert "the validation data, which may have ended training, are public" in fitted.declared
    again = validated(1, checkpoints=folder)
    assert (again.validation_losses, again.run) == (losses, fitted.run)
    assert torch.equal(flat(again.model), flat(fitted.model))


def test_under_a_budget_the_budget_is_certified_wherever_validation_ends_it() -> None:
    run = make_network_run(noise_multiplier=None, noise_budget=3.0, steps=40)
    given = TrainOptions(validation_data=make_data(seed=5), patience=1, noise_policy=lambda seen: 8.0)
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, options=given)
    assert fitted.run.total_steps == fitted.diagnostics.steps
    assert lethe.certify(fitted, DELTA).epsilon >= lethe.guarantees.ZCDP(3.0).epsilon(DELTA)


NARROW = make_data()[0][:, :2], make_data()[1]
LAST = make_network_run("cyclic", noise_multiplier=1.0, release="last")


@pytest.mark.parametrize(
    ("model", "given", "options", "said"),
    [
        ("network", {"run": LAST}, {"validation_data": make_data()}, "validation_data: given, and release is last"),
        ("network", WORDS, {"patience": 2}, "patience: got 2, and no validation data"),
        ("network", WORDS, {"validation_data": NARROW}, "validation_data: they do not go through"),
        ("linear", {**WORDS, "optimizer": "sgd", "lr": 0.5}, {}, "optimizer: a Linear"),
        ("linear", WORDS, {}, "lr: got None, and no run"),
    ],
)
def test_words_that_a_model_cannot_use_are_refused(model: str, given: dict[str, Any], options: dict[str, Any], said: str) -> None:
    network = make_network()
    own: Any = (network, CROSS_ENTROPY, make_data()) if model == "network" else (Linear(classes=3), SOFTMAX, ROWS)
    with pytest.raises(LetheError, match=said):
        fit(*own, **given, options=TrainOptions(**options))
    assert torch.equal(flat(network), flat(make_network()))


def test_a_linear_model_takes_the_words_and_the_step_size() -> None:
    fitted = fit(Linear(classes=3), SOFTMAX, ROWS, **WORDS, lr=0.5)
    assert (fitted.run.step_size, fitted.run.clip_norm, fitted.run.loss) == (0.5, None, SOFTMAX)
    assert fitted.epsilon == pytest.approx(3.0, rel=1e-6)


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


def test_all_models_come_out_alike() -> None:
    """The same fields, of which a budget fills the same ones, whatever was trained."""
    fields: dict[str, Any] = {"noise_budget": 1.0, "release": "all", "neighbours": "replace_one"}
    table = make_problem("softmax_regression")
    rows, classes = torch.tensor(table.features), torch.tensor(table.targets)
    head = Head(nn.Identity(), nn.Linear(4, 3, bias=False).double())
    module: Fitted[Any] = fit(make_network(), CROSS_ENTROPY, make_data(), make_network_run("cyclic", noise_multiplier=2.0, **fields))
    linear: Fitted[Any] = fit(Linear(classes=3), None, (table.features, table.targets), make_run(**fields))
    on_top: Fitted[Any] = fit(head, None, (rows, classes), make_run(**fields))
    for fitted in (module, linear, on_top):
        assert (fitted.diagnostics.records, fitted.diagnostics.left_over, fitted.odometer) == (23, 3, Odometer.up_to(1.0))
        assert fitted.spent is not None
        assert 0.5 < fitted.spent <= 1.0 + 1e-9
        assert fitted.checked
        assert not fitted.run.seeded
        assert fitted.record.run == fitted.run
        assert lethe.certify(fitted, 1e-5).epsilon < np.inf
        with pytest.raises(InputError, match=r"(?s)certificate: this training was planned by a run.*lethe\.certify\(fitted, delta=1e-5\)"):
            _ = fitted.certificate  # a run has no delta
    assert isinstance(module.model, nn.Sequential)
    assert isinstance(linear.model, LinearPredictor)
    assert (linear.model.classes, linear.model.loss.kind) == (3, "softmax_regression")
    assert on_top.model(rows).shape == (23, 3)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
FEATURES, LABELS = make_data()
REAL = FEATURES[:, :1] + 0.1
MEANS: dict[str, tuple[Any, Any, Tensor, int]] = {
    "cross entropy": (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="none"), LABELS, CLASSES),
    "with weights of classes": (
        nn.CrossEntropyLoss(weight=WEIGHTS),
        nn.CrossEntropyLoss(weight=WEIGHTS, reduction="none"),
        LABELS,
        CLASSES,
    ),
    "its function": (functional.cross_entropy, nn.CrossEntropyLoss(reduction="none"), LABELS, CLASSES),
    "of several numbers": (nn.MSELoss(), nn.MSELoss(reduction="none"), FEATURES[:, :2].contiguous(), 2),
    "of one number": (nn.HuberLoss(), nn.HuberLoss(reduction="none"), REAL, 1),
    "one a record": (nn.BCEWithLogitsLoss(reduction="none"), nn.BCEWithLogitsLoss(reduction="none"), REAL.sigmoid(), 1),
}


@pytest.mark.parametrize("physical_size", [None, 1, 4])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_of_pytorch_s_own_is_each_record_s(name: str, physical_size: int | None) -> None:
    """The mean over a record's own numbers; the user's loss is as it was."""
    mean, plain, targets, outputs = MEANS[name]
    ends = []
    for loss in (mean, lambda outputs, wanted: plain(outputs, wanted).reshape(len(outputs), -1).mean(1)):
        model = nn.Linear(COLUMNS, outputs).double()
        nn.init.constant_(model.weight, 0.1)
        nn.init.zeros_(model.bias)
        run, data = make_network_run(noise_multiplier=1.0), (FEATURES, targets)
        ends.append(flat(fit(model, loss, data, run, options=TrainOptions(seed=0, physical_size=physical_size)).model))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-14)
    assert getattr(mean, "reduction", "mean") in ("mean", "none")

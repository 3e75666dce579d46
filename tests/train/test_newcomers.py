"""What newcomers type: ten mistakes, and the names of Opacus: they work, or are answered by a line that works as it stands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import RECORDS, Loop, losses_of, make_data, make_network, make_network_run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lethe
import lethe.train
from lethe.errors import HypothesisError, InputError, LetheError, UnknownNameError
from lethe.train import PrivacyEngine, TrainOptions, fit, fix_batch_norm, planning
from lethe.train.engine.opacus import NAMES

DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
WORDS = {"epsilon": 3.0, "delta": 1e-3, "epochs": 1, "batch_size": 16}


def network(*, batch_norm: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *([nn.BatchNorm1d(8)] if batch_norm else []), nn.Tanh(), nn.Linear(8, 3))


class OwnLoop:
    """A loop of one's own with its names, in which a line may be another one."""

    def __init__(self, losses: Any = None) -> None:
        self.model = network()
        self.criterion = nn.CrossEntropyLoss(reduction="none")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        losses = losses or (lambda batch: self.criterion(self.model(batch[0]), batch[1]))
        self.engine = PrivacyEngine(self.model, self.optimizer, losses, DATA, **WORDS)

    def run(self, body: str = "engine.backward(batch)\noptimizer.step()\noptimizer.zero_grad()", epochs: str = "engine.epochs()") -> None:
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        code = f"for epoch in {epochs}:\n    for batch in engine.batches():\n{lines}"
        exec(code, {"engine": self.engine, "optimizer": self.optimizer, "model": self.model, "criterion": self.criterion})


def trained(model: nn.Module | None = None, data: Any = DATA, loss: Any = None, **others: Any) -> Any:
    return fit(network() if model is None else model, nn.CrossEntropyLoss() if loss is None else loss, data, **{**WORDS, **others})


def value(code: str, **names: Any) -> Any:
    """What an expression gives."""
    return eval(code, {"torch": torch, "nn": nn, "lethe": lethe, "fix_batch_norm": fix_batch_norm, "TrainOptions": TrainOptions, **names})


# What raises, a line of the answer, and what is run with that line in it, as it stands.
MISTAKES: dict[str, tuple[Callable[[], Any], str, Callable[[str], Any]]] = {
    "batch normalisation": (
        lambda: trained(network(batch_norm=True)),
        "fix_batch_norm(model)",
        lambda remedy: trained(value(remedy, model=network(batch_norm=True))),
    ),
    "the class of a loss": (
        lambda: trained(loss=nn.CrossEntropyLoss),
        'CrossEntropyLoss(reduction="none")',
        lambda remedy: trained(loss=value(f"nn.{remedy}")),
    ),
    "float64 features": (
        lambda: trained(data=(DATA[0].double().numpy(), DATA[1].numpy())),
        "features.astype(numpy.float32)",
        lambda remedy: trained(data=(eval(remedy, {"features": DATA[0].double().numpy(), "numpy": __import__("numpy")}), DATA[1].numpy())),
    ),
    "classes as floats": (
        lambda: trained(data=(DATA[0], DATA[1].float())),
        "targets.long()",
        lambda remedy: trained(data=(DATA[0], value(remedy, targets=DATA[1].float()))),
    ),
    "a model in half precision": (
        lambda: trained(network().half()),
        "model.float()",
        lambda remedy: trained(value(remedy, model=network().half())),
    ),
    "no delta": (
        lambda: fit(network(), nn.CrossEntropyLoss(), DATA, epsilon=3.0, epochs=10),
        "fit(model, loss, data, epsilon=3.0, delta=1e-5)",
        lambda remedy: value(remedy, fit=fit, model=network(), loss=nn.CrossEntropyLoss(), data=DATA),
    ),
    "an option beside the words": (
        lambda: trained(physical_size=8),  # as of older versions
        "options=TrainOptions(physical_size=",
        lambda remedy: trained(**value(f"dict({remedy}8))")),
    ),
    "a mean over the batch in a loop": (
        lambda: (loop := OwnLoop(lambda batch: nn.functional.cross_entropy(loop.model(batch[0]), batch[1]))).run(),
        'reduction="none"',
        lambda remedy: (loop := OwnLoop(lambda batch: value(f"nn.CrossEntropyLoss({remedy})")(loop.model(batch[0]), batch[1]))).run(),
    ),
    "loss.backward() as before": (
        lambda: OwnLoop().run("criterion(model(batch[0]), batch[1]).mean().backward()\noptimizer.step()"),
        "engine.backward(batch)",
        lambda remedy: OwnLoop().run(f"{remedy}\noptimizer.step()\noptimizer.zero_grad()"),
    ),
    "epochs that are counted by hand": (
        lambda: OwnLoop().run(epochs="range(3)"),
        "for epoch in engine.epochs()",
        lambda remedy: OwnLoop().run(epochs=remedy.removeprefix("for epoch in ")),
    ),
    "an old name": (
        lambda: lethe.Poisson(256),  # pyright: ignore[reportAttributeAccessIssue]
        "lethe.batches.Poisson",
        lambda remedy: value(f"{remedy}(256)"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_by_what_works(name: str) -> None:
    made, remedy, mended = MISTAKES[name]
    with pytest.raises((LetheError, TypeError)) as refused:
        made()
    assert remedy in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 3
    mended(remedy)


DELTA = 1e-3


def loader_of(**changes: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*make_data()), **{"batch_size": 5, "shuffle": True, **changes})


def opened(**changes: Any) -> PrivacyEngine:
    """An engine for (epsilon, delta)."""
    model = make_network()
    words: dict[str, Any] = {"data": loader_of(), "epsilon": 3.0, "delta": DELTA, "epochs": 2, "clip_norm": 0.4}
    words |= {"losses": losses_of(model), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    return PrivacyEngine(**{"model": model, **words, **changes})


def test_a_loop_over_epochs_is_the_shuffled_run() -> None:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = opened(model=model, losses=losses_of(model), optimizer=optimizer)
    run = engine.run
    assert (run.records, run.batches, run.total_steps) == (RECORDS, lethe.batches.RandomAllocation(5), 2 * 5)
    assert (run.release, run.neighbours, run.clip_norm, run.step_size) == ("all", "add_or_remove", 0.4, 0.1)
    for _ in engine.epochs():
        assert len(engine.batches()) == 5
        for batch in engine.batches():
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
    assert engine.steps == 10
    certificate = lethe.certify(engine.record(), DELTA)
    assert certificate.epsilon == engine.epsilon() == engine.epsilon(DELTA, steps_fixed_in_advance=True) == pytest.approx(3.0, rel=1e-6)
    assert certificate.epsilon <= 3.0
    planned = lethe.plan(run.replace(noise_multiplier=None), epsilon=3.0, delta=DELTA)
    assert run.noise_multiplier == planned.noise_multiplier
    numbers = opened().epochs()
    next(numbers)
    with pytest.raises(InputError, match=r"(?s)no batch of epoch 0 was used.*engine\.batches"):
        next(numbers)


def test_ten_epochs_are_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of equal expected size: every record is expected once an epoch, up to the rounding of that size."""
    monkeypatch.setattr(planning, "plan", lambda run, *target, **options: run.replace(noise_multiplier=1.0))
    for size, steps, expected in ((5, 5, 5), (7, 4, 6), (22, 2, 12), (23, 1, 23), (100, 1, 23), (1, 23, 1)):
        run = opened(data=make_data(), batch_size=size, epochs=10).run
        assert (run.total_steps, run.batch_size) == (10 * steps, expected)
        assert 10 <= run.total_steps * run.batch_size / RECORDS < 10 * (1 + steps / RECORDS)


def test_a_large_delta_may_be_meant_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"(?s)delta: got 0\.1; with 23 records.*allow_large_delta=True"):
        opened(delta=0.1)
    monkeypatch.setattr(planning, "plan", lambda run, *target, **options: run.replace(noise_multiplier=1.0))
    engine = opened(delta=0.1, options=TrainOptions(allow_large_delta=True))
    with pytest.raises(InputError, match="allow_large_delta=True"):
        engine.epsilon(0.2)
    assert engine.epsilon(0.1, steps_fixed_in_advance=True, allow_large_delta=True) == 0.0


def test_what_is_spent_so_far_is_the_certificate_of_the_steps_taken() -> None:
    """Also of a step whose noisy gradient is there and not used yet: it is released."""
    run = make_network_run("full", noise_multiplier=1.0)
    loop = Loop(run, batch_generator=None, noise_generator=None, physical_size=12)

    def of(steps: int) -> float:
        return lethe.certify(loop.run.replace(steps=steps), DELTA).epsilon

    assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == 0.0
    with pytest.raises(InputError, match="delta"):
        loop.engine.epsilon(2.0, steps_fixed_in_advance=True)
    for place, batch in enumerate(loop.loader, start=1):
        loop.engine.backward(batch)
        drawn, complete = place // 2, place % 2 == 0
        assert (loop.engine.batch_complete, loop.engine.stepped) == (complete, False)
        assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == (of(drawn) if drawn else 0.0)
        loop.optimizer.step()
        assert (loop.engine.stepped, loop.engine.steps) == (complete, drawn)
        if drawn == 2:
            break
    assert of(1) < of(2) < lethe.certify(loop.engine.record(), DELTA).epsilon  # a loop that ends early is certified for the plan
    with torch.no_grad():
        loop.model[0].weight += 1e-3
    with pytest.raises(HypothesisError):
        loop.engine.epsilon(DELTA, steps_fixed_in_advance=True)
    seeded = Loop(run)
    seeded.use(next(iter(seeded.loader)))
    assert seeded.engine.epsilon(DELTA, steps_fixed_in_advance=True) == float("inf")


def test_names_are_answered_by_a_line() -> None:
    engine = opened()
    for name, said in NAMES.items():
        with pytest.raises(UnknownNameError, match=f"no '{name}'") as unknown:
            getattr(engine, name)
        with pytest.raises(InputError, match=f"has no {name}") as refused:
            exec(f"from lethe.train import {name}")
        assert said in str(unknown.value)
        assert said in str(refused.value)
        assert not hasattr(engine, name)
    for owner in (lethe.train, engine):
        with pytest.raises(AttributeError, match="'nothing'"):
            _ = owner.nothing

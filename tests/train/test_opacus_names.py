"""What people type who come from Opacus: it works with the same meaning, or the error holds the line that does it here."""

from typing import Any

import pytest
import torch
from networks import RECORDS, make_data, make_network, make_network_run
from private_loops import Loop, losses_of
from torch.utils.data import DataLoader, TensorDataset

import lethe
import lethe.train
from lethe.errors import HypothesisError, InputError, UnknownNameError
from lethe.train import PrivacyEngine, TrainOptions, planning
from lethe.train.engine.opacus import NAMES

DELTA = 1e-3


def loader_of(**changes: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*make_data()), **{"batch_size": 5, "shuffle": True, **changes})


def opened(**changes: Any) -> PrivacyEngine:
    """An engine for (epsilon, delta)."""
    model = make_network()
    words: dict[str, Any] = {"data": loader_of(), "epsilon": 3.0, "delta": DELTA, "epochs": 2, "clip_norm": 0.4}
    words |= {"losses": losses_of(model), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    return PrivacyEngine(**{"model": model, **words, **changes})


def test_a_loop_over_epochs_is_the_run_that_opacus_means() -> None:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine(model, optimizer, losses_of(model), loader_of(), epsilon=3.0, delta=DELTA, epochs=2, clip_norm=0.4)
    run = engine.run
    assert (run.records, run.batches, run.total_steps) == (RECORDS, lethe.batches.Poisson(5), 2 * 5)
    assert (run.release, run.neighbours, run.clip_norm, run.step_size) == ("all", "add_or_remove", 0.4, 0.1)
    counts = []
    for epoch in engine.epochs():
        assert len(engine.batches()) == 5
        counts.append(0)
        for batch in engine.batches():
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
            counts[epoch] += 1
    assert counts == [5, 5]
    certificate = lethe.certify(engine.record(), DELTA)
    assert certificate.epsilon == engine.epsilon() == engine.epsilon(DELTA, steps_fixed_in_advance=True) == pytest.approx(3.0, rel=1e-6)
    assert certificate.epsilon <= 3.0
    planned = lethe.plan(run.replace(noise_multiplier=None), epsilon=3.0, delta=DELTA)
    assert run.noise_multiplier == planned.noise_multiplier


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
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loop.optimizer, 0.5)
    drawn, flags = 0, []
    for batch in loop.loader:
        loop.engine.backward(batch)
        complete = loop.engine.batch_complete
        drawn += complete
        assert not loop.engine.stepped
        if complete:
            assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == of(drawn)
        loop.optimizer.step()
        if loop.engine.stepped:
            scheduler.step()
        assert loop.engine.stepped is complete
        assert loop.engine.steps == drawn
        flags.append(complete)
        if drawn:
            assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == of(drawn)
        if drawn == 2:
            break
    assert flags.count(True) == 2
    assert loop.optimizer.param_groups[0]["lr"] == 0.5 * 0.5**2  # once a step
    assert len(flags) == 2 * 2
    assert of(1) < of(2) < lethe.certify(loop.engine.record(), DELTA).epsilon  # a loop that ends early is certified for the plan
    assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == of(2)


def test_what_a_seed_spends_is_infinite_and_moved_parameters_are_found() -> None:
    loop = Loop(make_network_run(noise_multiplier=1.0))
    loop.use(next(iter(loop.loader)))
    assert loop.engine.epsilon(DELTA, steps_fixed_in_advance=True) == float("inf")
    with torch.no_grad():
        loop.model[0].weight += 1e-3
    with pytest.raises(HypothesisError):
        loop.engine.epsilon(DELTA, steps_fixed_in_advance=True)


def test_an_epoch_without_a_batch_is_refused() -> None:
    numbers = opened().epochs()
    next(numbers)
    with pytest.raises(InputError, match=r"(?s)no batch of epoch 0 was used.*engine\.batches"):
        next(numbers)


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

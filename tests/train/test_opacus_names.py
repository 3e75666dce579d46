"""What people type who come from Opacus: it works with the same meaning, or the error holds the line that does it here."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, RECORDS, make_data, make_network, make_network_run, one_thread
from private_loops import Loop, losses_of
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import lethe
import lethe.train
from lethe.errors import HypothesisError, InputError, UnknownArgumentError, UnknownNameError
from lethe.train import Checkpoints, PrivacyEngine

DELTA = 1e-3


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def loader_of(**changes: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*make_data()), **{"batch_size": 5, "shuffle": True, **changes})


def opened(engine: PrivacyEngine | None = None, **changes: Any) -> tuple[PrivacyEngine, Any, Any, Any]:
    """An engine opened as with Opacus, for (epsilon, delta)."""
    engine = PrivacyEngine() if engine is None else engine
    model = make_network()
    asked: dict[str, Any] = {"data_loader": loader_of(), "target_epsilon": 3.0, "target_delta": DELTA, "epochs": 2, "max_grad_norm": 0.4}
    asked["losses"] = losses_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return engine, *engine.make_private_with_epsilon(module=model, optimizer=optimizer, **{**asked, **changes})


@pytest.mark.slow
def test_a_loop_over_epochs_is_the_run_that_opacus_means() -> None:
    engine, _, optimizer, loader = opened()
    run = engine.run
    assert (run.records, run.batches, run.total_steps) == (RECORDS, lethe.batches.Poisson(5), 2 * 5)
    assert (run.release, run.neighbours, run.clip_norm, run.step_size) == ("all", "add_or_remove", 0.4, 0.1)
    assert len(loader) == 5
    counts = []
    for _ in range(2):
        counts.append(0)
        for batch in loader:
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
            counts[-1] += 1
    assert counts == [5, 5]
    certificate = lethe.certify(engine.record(), DELTA)
    assert certificate.epsilon == engine.get_epsilon(DELTA) == pytest.approx(3.0, rel=1e-6)
    assert certificate.epsilon <= 3.0
    planned = lethe.plan(run.replace(noise_multiplier=None), epsilon=3.0, delta=DELTA)
    assert run.noise_multiplier == planned.noise_multiplier


def test_with_noise_that_is_given() -> None:
    model = make_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    given: dict[str, Any] = {"module": model, "optimizer": optimizer, "data_loader": loader_of(), "max_grad_norm": 0.4}
    given["losses"] = losses_of(model)
    for wrong, said in (
        ({"epochs": 1}, "make_private_with_epsilon"),
        ({"noise_multiplier": 1.0}, "epochs=10"),
        ({"noise_multiplier": 1.0, "epochs": 1, "steps": 2}, "one of them"),
    ):
        with pytest.raises(InputError, match=said):
            PrivacyEngine().make_private(**given, **wrong)
    engine = PrivacyEngine()
    with pytest.raises(InputError, match="run: this engine has none yet"):
        _ = engine.run
    engine.make_private(**given, noise_multiplier=1.5, steps=7)
    assert (engine.run.noise_multiplier, engine.run.total_steps) == (1.5, 7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"users": [1] * RECORDS}, 'unit="user"'),
        ({"noise_multiplier": 1.0}, "found for target_epsilon"),
        ({"poisson_sampling": False}, r"lethe\.Shuffled\(size"),
        ({"clipping": "per_layer"}, "clip_groups"),
        ({"loss_reduction": "sum"}, "expected batch size"),
        ({"grad_sample_mode": "ghost"}, "same way"),
        ({"noise_generator": torch.Generator()}, r"PrivacyEngine\(run, noise_generator"),
        ({"criterion": CROSS_ENTROPY}, r"losses=lambda batch: criterion\(model\(batch\[0\]\)"),
        ({"batch_first": False}, "records first"),
        ({"epsilon": 1.0}, "did you mean 'target_epsilon'"),
        ({"learning_speed": 3}, "it knows module, optimizer"),
    ],
)
def test_arguments_that_it_does_not_take_are_answered_by_a_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownArgumentError, match=f"(?s)^{next(iter(changes))}: .*make_private_with_epsilon takes no such.*{said}"):
        opened(**changes)


def test_what_it_takes_and_cannot_use_is_refused() -> None:
    for changes, said in (
        ({"max_grad_norm": 0.0}, "max_grad_norm = 0"),
        ({"losses": None}, "(?s)losses: none was given.*losses=lambda batch"),
        ({"data_loader": loader_of(batch_size=RECORDS + 1, drop_last=True)}, "steps"),
        ({"data_loader": make_data()}, r"needs a torch\.utils\.data\.DataLoader"),
        ({"engine": PrivacyEngine(make_network_run(noise_multiplier=1.0))}, r"lethe\.plan\(run, epsilon"),
    ):
        with pytest.raises(InputError, match=said):
            opened(**changes)


def test_arguments_of_its_own_engine_are_answered() -> None:
    for word, said in (("secure_mode", "'secure'"), ("accountant", "none is chosen"), ("max_physical_batch_size", "physical_size")):
        with pytest.raises(UnknownArgumentError, match=said):
            PrivacyEngine(make_network_run(), **{word: True})


def test_a_large_delta_may_be_meant_here_too() -> None:
    with pytest.raises(InputError, match=r"(?s)delta: got 0\.1; with 23 records.*allow_large_delta=True"):
        opened(target_delta=0.1)
    engine = opened(target_delta=0.1, allow_large_delta=True)[0]
    assert lethe.certify(engine.run, 0.1, allow_large_delta=True).epsilon <= 3.0
    with pytest.raises(InputError, match="allow_large_delta=True"):
        engine.get_epsilon(0.1)
    assert engine.get_epsilon(0.1, allow_large_delta=True) == 0.0


@pytest.mark.slow
def test_what_is_spent_so_far_is_the_certificate_of_the_steps_taken() -> None:
    """Also of a step whose noisy gradient is there and not used yet: it is released."""
    run = make_network_run("without_replacement", noise_multiplier=1.0)  # fresh Poisson batches could be single parts
    loop = Loop(run, batch_generator=None, noise_generator=None, physical_size=2)

    def of(steps: int) -> float:
        return lethe.certify(loop.run.replace(steps=steps), DELTA).epsilon

    assert loop.engine.get_epsilon(DELTA) == 0.0
    with pytest.raises(InputError, match="delta"):
        loop.engine.get_epsilon(2.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loop.optimizer, 0.5)
    drawn, flags = 0, []
    for batch in loop.loader:
        loop.engine.backward(batch)
        complete = loop.engine.batch_complete
        drawn += complete
        assert not loop.engine.stepped
        if complete:
            assert loop.engine.get_epsilon(DELTA) == of(drawn)
        loop.optimizer.step()
        if loop.engine.stepped:
            scheduler.step()
        assert loop.engine.stepped is complete
        assert loop.engine.steps == drawn
        flags.append(complete)
        if drawn:
            assert loop.engine.get_epsilon(DELTA) == of(drawn)
        if drawn == 2:
            break
    assert flags.count(True) == 2
    assert loop.optimizer.param_groups[0]["lr"] == 0.5 * 0.5**2  # once a step
    assert len(flags) == 2 * 3  # five records each
    assert of(1) < of(2) < lethe.certify(loop.engine.record(), DELTA).epsilon  # a loop that ends early is certified for the plan
    assert loop.engine.get_epsilon(DELTA) == of(2)


@pytest.mark.slow
def test_what_a_seed_spends_is_infinite_and_moved_parameters_are_found() -> None:
    loop = Loop(make_network_run(noise_multiplier=1.0))
    loop.use(next(iter(loop.loader)))
    assert loop.engine.get_epsilon(DELTA) == float("inf")
    with torch.no_grad():
        loop.model[0].weight += 1e-3
    with pytest.raises(HypothesisError):
        loop.engine.get_epsilon(DELTA)


@pytest.mark.nightly(by_day="test_with_a_seed_no_noise_is_drawn_twice_and_the_batches_go_on")
@pytest.mark.slow
def test_epochs_go_on_after_an_interruption(tmp_path: Any) -> None:
    spent = []
    for stop in (3, 7, None):
        engine, _, optimizer, loader = opened(PrivacyEngine(checkpoints=Checkpoints(folder=tmp_path, every=1)))
        spent.append(engine.get_epsilon(DELTA))
        taken = [0, 0]
        for epoch in range(2):
            for batch in loader if engine.steps != stop else ():
                engine.backward(batch)
                optimizer.step()
                taken[epoch] += 1
                if engine.steps == stop:
                    break
        if stop is None:
            assert taken == [3, 0]  # the noise of seven was drawn: what no checkpoint holds is lost, and counted
            assert with_fresh_noise(engine.recorded_run()) == engine.run
        engine.close()
    assert spent[0] == 0.0 < spent[1] < spent[2]


LINES = {
    "accountant": "get_epsilon",
    "validate": "give make_private the model itself",
    "get_compatible_module": "batch normalisation",
    "GradSampleModule": "nothing is wrapped",
    "attach_step_hook": "register_step_post_hook",
    "save_checkpoint": "checkpoints=folder",
    "max_physical_batch_size": "physical_size=64",
    "BatchMemoryManager": "physical_size=64",
    "DPOptimizer": "guards the optimiser",
}


@pytest.mark.parametrize("name", LINES)
def test_names_are_answered_by_a_line(name: str) -> None:
    engine = PrivacyEngine(make_network_run())
    with pytest.raises(UnknownNameError, match=f"no '{name}'(?s:.*){LINES[name]}"):
        getattr(engine, name)
    assert not hasattr(engine, name)
    assert copy.copy(engine).run == engine.run
    with pytest.raises(InputError, match=f"no {name}, a name of Opacus(?s:.*){LINES[name]}"):
        exec(f"from lethe.train import {name}")


def test_names_that_nobody_has_are_unknown() -> None:
    for owner in (lethe.train, PrivacyEngine(make_network_run())):
        with pytest.raises(AttributeError, match="'nothing'"):
            _ = owner.nothing


@pytest.mark.slow
def test_loaders_that_stand_for_no_design_are_refused() -> None:
    data = TensorDataset(*make_data())
    weighted = WeightedRandomSampler([1.0] * RECORDS, RECORDS)
    for loader in (
        DataLoader(data, batch_size=5, sampler=weighted),
        DataLoader(data, batch_size=None),
        DataLoader(data, batch_sampler=[[0, 1], [2, 3]]),
        DataLoader(data, batch_size=5, sampler=torch.utils.data.RandomSampler(data, replacement=True)),
        DataLoader(data, batch_size=5, sampler=torch.utils.data.RandomSampler(data, num_samples=10)),
    ):
        with pytest.raises(InputError, match="for which no batch design stands"):
            opened(data_loader=loader)
    with pytest.warns(lethe.LetheWarning, match="generator is ignored"):
        opened(data_loader=loader_of(generator=torch.Generator()), steps=1, epochs=None)


def test_a_run_and_a_loader_are_one_too_many() -> None:
    engine, model = PrivacyEngine(make_network_run(noise_multiplier=1.0)), make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in ({"data_loader": loader_of()}, {"epochs": 3}, {"steps": 3}, {"noise_multiplier": 1.0}, {"max_grad_norm": 0.4}):
        with pytest.raises(InputError, match=f"{next(iter(given))}: given, and the engine has a run"):
            engine.make_private(module=model, optimizer=optimizer, losses=losses_of(model), data=make_data(), **given)
    with pytest.raises(InputError, match="data_loader: got NoneType"):
        PrivacyEngine().make_private(module=model, optimizer=optimizer, losses=losses_of(model), data=make_data())


@pytest.mark.slow
def test_a_collate_function_of_the_loader_is_kept() -> None:
    def doubled(records: list[Any]) -> tuple[torch.Tensor, ...]:
        return torch.stack([2.0 * features for features, _ in records]), torch.stack([target for _, target in records])

    engine, _, _, loader = opened(data_loader=loader_of(collate_fn=doubled), steps=1, epochs=None)
    features = next(iter(loader))[0]
    known = {tuple(row) for row in (2.0 * make_data()[0]).tolist()}
    assert {tuple(row) for row, counts in zip(features.tolist(), engine.counted.tolist(), strict=True) if counts} <= known

"""Loops of one's own: as fit trains, with what people put around them; looked into, interrupted, killed, and taken up again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS, with_fresh_noise
from interrupted import make_kept_run
from networks import CROSS_ENTROPY, RECORDS, Loop, fit_network, flat, losses_of, make_data, make_network, make_network_run
from torch import nn
from torch.utils.data import Subset, TensorDataset

import lethe
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.errors import InputError, LetheWarning
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions


@pytest.mark.sampled(14)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("physical_size", "make"), [(None, torch.optim.Adam), (4, torch.optim.SGD)])
def test_a_loop_of_one_s_own_is_fit(design: str, physical_size: int | None, make: Callable[..., Any]) -> None:
    run = make_network_run(design, steps=6, noise_multiplier=1.0)
    loop = Loop(run, optimizer=lambda parameters: make(parameters, lr=0.05), physical_size=physical_size)
    names = list(loop.model.state_dict())
    assert with_fresh_noise(loop.whole()) == run
    twin, draws = make_network(), {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0)}
    fit_network(run, twin, optimizer=make(twin.parameters(), lr=0.05), **draws)
    assert float((flat(loop.model) - flat(twin)).abs().max()) < 1e-9
    assert list(loop.model.state_dict()) == names == list(make_network().state_dict())
    assert lethe.certify(with_fresh_noise(loop.engine.recorded_run()), delta=1e-5).epsilon == lethe.certify(run, delta=1e-5).epsilon


def test_passes_end_at_passes_and_a_loop_may_stop_early() -> None:
    run = make_network_run("shuffled", passes=3, noise_multiplier=1.0)
    loop = Loop(run, physical_size=3)
    ended = []
    for _ in loop.engine.epochs():
        for batch in loop.loader:
            loop.use(batch)
        ended.append(loop.engine.steps)
    assert ended == [4, 8, 12]
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    loop = Loop(run)
    for batch in loop.loader:
        loop.use(batch)
        if loop.engine.steps == 5:
            break
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    early = loop.engine.recorded_run(steps_fixed_in_advance=True)
    assert early.total_steps == 5
    assert early.noise_multipliers.tolist() == [1.0] * 5
    assert with_fresh_noise(loop.whole()) == run  # the rest


def test_epsilon_within_a_pass_is_of_the_batches_that_were_visited() -> None:
    """Of an epoch and a half: each step's is the certificate of so many, and no step before the end takes that of the whole plan."""
    whole = make_network_run("random_allocation", steps=6, noise_multiplier=2.0, neighbours="add_or_remove")
    loop, spent = Loop(whole, noise_generator=None, batch_generator=None), list[float]()
    for batch in loop.loader:
        loop.use(batch)
        spent.append(loop.engine.epsilon(1e-3, steps_fixed_in_advance=True))
        assert spent[-1] == lethe.certify(whole.replace(steps=loop.engine.steps), 1e-3).epsilon
        assert loop.engine.epsilon(1e-3) == lethe.certify(whole, 1e-3).epsilon
    assert spent == sorted(spent)
    pair = BallsInBinsGaussian(mus=(0.0, 0.5), counts=(3, 2), relation="add_or_remove")  # two of the five batches
    assert spent[1] == pytest.approx(pair.epsilon(1e-3), rel=1e-6)


def test_forgetting_zero_grad_does_no_harm_and_steps_of_half_batches_change_nothing() -> None:
    run = make_network_run("full", steps=2, noise_multiplier=1.0)
    loop = Loop(run, physical_size=10, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5))
    moved = []
    for batch in loop.loader:
        before = flat(loop.model)
        loop.engine.backward(batch)
        loop.optimizer.step()
        moved.append(not torch.equal(before, flat(loop.model)))
    assert moved == [False, False, True, False, False, True]
    assert with_fresh_noise(loop.engine.recorded_run()) == run


RUN_OF_ALL = make_network_run(noise_multiplier=1.0)


def parts_of(model: nn.Module) -> list[torch.optim.Optimizer]:
    first, *others = model.parameters()
    return [torch.optim.SGD([first], lr=0.5), torch.optim.AdamW(others, lr=0.1)]


def test_several_optimisers_take_the_steps_of_each() -> None:
    """In fit and in a loop of one's own: as one optimiser whose step calls both."""
    fitted, looped = make_network(), make_network()
    fit_network(RUN_OF_ALL, fitted, optimizer=parts_of(fitted), seed=3)
    engine, parts = engine_of_parts(looped, seed=3)
    for batch in engine.batches():
        engine.backward(batch)
        for place, part in enumerate(parts):
            part.step()
            assert engine.steps == engine.drawn - 1 + place
        for part in parts:
            part.zero_grad()
    assert engine.recorded_run().total_steps == RUN_OF_ALL.total_steps
    torch.testing.assert_close(flat(fitted), flat(looped), rtol=0, atol=1e-9)
    assert ((flat(fitted) - flat(make_network())).abs() > 1e-6).all()


def engine_of_parts(model: nn.Module, **options: Any) -> tuple[PrivacyEngine, list[torch.optim.Optimizer]]:
    parts = parts_of(model)
    return PrivacyEngine(model, parts, losses_of(model), make_data(), RUN_OF_ALL, options=TrainOptions(**options)), parts


def test_a_step_of_some_optimisers_alone_is_no_step(tmp_path: Path) -> None:
    model = make_network()
    engine, parts = engine_of_parts(model, checkpoints=tmp_path)
    batches = iter(engine.batches())
    engine.backward(next(batches))
    parts[0].step()
    with pytest.raises(InputError, match="no private gradient"):
        parts[0].step()
    with pytest.raises(InputError, match="step 1 was not taken"):
        next(batches)
    parts[1].step()
    engine.save()
    engine.close()
    again = make_network()
    resumed, _ = engine_of_parts(again, checkpoints=tmp_path)
    assert (resumed.resumed, torch.equal(flat(again), flat(model))) == (1, True)
    resumed.close()


RUN = make_network_run("full", noise_multiplier=0.0, steps=3)


def test_a_step_clips_and_moves_what_is_trained_then() -> None:
    """By hand: clipped gradients of all layers, then of the last ones alone, then of all."""
    loop = Loop(RUN)
    features, targets = make_data()
    by_hand = make_network()
    for step, batch in enumerate(loop.loader):
        frozen = step == 1
        loop.model[0].requires_grad_(not frozen)
        trained = [parameter for name, parameter in by_hand.named_parameters() if not (frozen and name.startswith("0."))]
        total = torch.zeros(sum(parameter.numel() for parameter in trained), dtype=torch.float64)
        for loss in CROSS_ENTROPY(by_hand(features), targets):
            gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained, retain_graph=True)])
            total += gradient * min(1.0, 0.4 / float(gradient.norm()))
        with torch.no_grad():
            for parameter, part in zip(trained, total.split([parameter.numel() for parameter in trained]), strict=True):
                parameter -= 0.5 * part.view_as(parameter) / len(features)
        loop.use(batch)
        assert torch.allclose(flat(loop.model), flat(by_hand), rtol=0, atol=1e-9)
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


def test_what_is_frozen_gets_no_noise_and_the_rest_all_of_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 60_000)).double()
    loop = Loop(RUN.replace(noise_multiplier=1e4), model=model, noise_generator=None, batch_generator=None, seed=0)
    model[0].requires_grad_(False)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loop.use(next(iter(loop.loader)))
    moved = [one - two.detach() for one, two in zip(before, model.parameters(), strict=True)]
    assert not any(part.any() for part in moved[:2])
    noise = torch.cat([part.flatten() for part in moved[2:]]) / (0.5 * 1e4 * float(RUN.clip_norm or 0.0) / RUN.batch_size)
    assert abs(float(noise.std()) - 1) < 4 / (2 * len(noise)) ** 0.5 < 0.01


def test_a_scheduler_goes_on_with_the_optimiser(tmp_path: Path) -> None:
    """It steps after optimizer.step(): a checkpoint that was taken within that call would be one step short of it."""
    run = make_kept_run("poisson", noise_multiplier=0.0)
    ends = []
    for name, stops in (("whole", [None]), ("cut", [5, 11, None])):
        for stop in stops:
            model = make_network()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
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
    again = Loop(run, checkpoints=tmp_path, noise_generator=None)
    assert again.engine.resumed == 2
    again.engine.close()
    inside = make_kept_run("pass_ends")
    loop = Loop(inside, checkpoints=tmp_path / "ends", noise_generator=None)
    loop.use(next(iter(loop.loader)))
    with pytest.raises(InputError, match="step 1 has no noise of its own"):
        loop.engine.save()
    loop.engine.close()
    with pytest.raises(InputError, match="no folder to save to"):
        Loop(run).engine.save()


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


def of_epochs(data: Any, folder: Path) -> tuple[PrivacyEngine, torch.optim.Optimizer, Iterator[int]]:
    """An engine of two epochs of 5 steps, with checkpoints, its optimiser, and the numbers of its epochs."""
    model, words = make_network(), {"epsilon": 8.0, "delta": 1e-3, "epochs": 2, "batch_size": 5}
    optimizer, options = torch.optim.SGD(model.parameters(), lr=0.5), TrainOptions(checkpoints=Checkpoints(folder=folder, every=1))
    engine = PrivacyEngine(model, optimizer, losses_of(model), data, **words, options=options)
    return engine, optimizer, engine.epochs()


def epoch_of(engine: PrivacyEngine, optimizer: torch.optim.Optimizer) -> int:
    """How many steps were left of it."""
    before = engine.steps
    for batch in engine.batches():
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    return engine.steps - before


def test_what_a_loader_says_of_itself_and_epochs_after_a_kill_are_those_left(tmp_path: Path) -> None:
    loop, part = Loop(), Subset(TensorDataset(*make_data()), range(22))
    assert (len(loop.loader), loop.loader.batch_size, len(loop.loader.dataset)) == (9, 5, RECORDS)
    engine, optimizer, numbers = of_epochs(part, tmp_path)
    loader = engine.batches()
    assert (len(loader), loader.batch_size, loader.dataset is part) == (10, 5, True)
    assert next(numbers) == 0
    assert len(loader) == epoch_of(engine, optimizer) == 5
    next(numbers)
    next(iter(loader))  # with this the step before is saved
    engine.close()
    again, optimizer, numbers = of_epochs(part, tmp_path)
    assert (again.resumed, next(numbers)) == (5, 1)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with pytest.warns(LetheWarning, match=r"after step 5, and the learning rate's scheduler begins again.*also="):
        assert epoch_of(again, optimizer) == 5
    assert next(numbers, None) is None

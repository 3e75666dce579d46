"""A loop of one's own that was killed, and goes on from its checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from interrupted import Killed, Spy, make_kept_run, planned_batches
from networks import flat, make_network
from private_loops import Loop

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import Checkpoints

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


@pytest.mark.slow
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


@pytest.mark.nightly(by_day="test_every_release_is_counted_once")
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 2])
@pytest.mark.parametrize("make", [SGD, torch.optim.Adam])
def test_without_noise_it_is_the_uninterrupted_loop_bit_for_bit(
    tmp_path: Path, make: Callable[..., Any], physical_size: int | None
) -> None:
    run = make_kept_run("shuffled", noise_multiplier=0.0)
    options: dict[str, Any] = {"optimizer": lambda parameters: make(parameters, lr=0.05), "physical_size": physical_size}
    whole = looped(tmp_path / "whole", run, **options)
    for stop in (6, 9):
        looped(tmp_path / "cut", run, stop=stop, **options)
    cut = looped(tmp_path / "cut", run, **options)
    assert (cut.engine.resumed, cut.engine.steps) == (9, 20)
    assert torch.equal(flat(whole.model), flat(cut.model))
    assert with_fresh_noise(cut.engine.recorded_run()) == run


@pytest.mark.slow
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


@pytest.mark.nightly(by_day="test_every_release_is_counted_once")
@pytest.mark.slow
def test_epochs_go_on_to_the_end_of_their_pass(tmp_path: Path) -> None:
    run = make_kept_run("shuffled")
    looped(tmp_path, run, every=1, stop=6)
    loop = Loop(run, checkpoints=tmp_path, noise_generator=None)
    ended = []
    for _ in loop.engine.epochs():
        for batch in loop.loader:
            loop.use(batch)
        ended.append(loop.engine.steps)
    assert ended == [8, 12, 16, 20]
    assert with_fresh_noise(loop.engine.recorded_run()) == run


@pytest.mark.nightly(by_day="test_every_release_is_counted_once")
def test_killed_after_the_last_release_the_loop_has_nothing_left(tmp_path: Path) -> None:
    run = make_kept_run("cyclic")
    spy = Spy()
    spy.kill(20, before=False)
    looped(tmp_path, run, spy)
    loop = looped(tmp_path, run, spy)
    assert (loop.engine.resumed, loop.engine.steps) == (20, 20)
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    with pytest.raises(InputError, match="are used up"):
        loop.optimizer.step()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_loop_that_was_recorded_early_goes_on(tmp_path: Path) -> None:
    run = make_kept_run("cyclic")
    loop = Loop(run, checkpoints=tmp_path, noise_generator=None)
    for batch in loop.loader:
        loop.use(batch)
        if loop.engine.steps == 5:
            break
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    assert loop.engine.recorded_run(steps_fixed_in_advance=True).total_steps == 5
    loop.engine.close()
    assert with_fresh_noise(looped(tmp_path, run).engine.recorded_run()) == run


@pytest.mark.slow
def test_a_refused_engine_leaves_the_folder_unlocked(tmp_path: Path) -> None:
    run = make_kept_run("cyclic")
    looped(tmp_path, run, stop=4)
    for _ in range(2):
        with pytest.raises(InputError, match="optimizer: the checkpoint has"):
            looped(tmp_path, run, optimizer=lambda parameters: torch.optim.Adam(parameters))
    assert with_fresh_noise(looped(tmp_path, run).engine.recorded_run()) == run

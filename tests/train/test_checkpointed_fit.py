"""Training that goes on from a checkpoint: with what it was and nothing else, and with all that was drawn counted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import as_planned
from interrupted import Spy, make_kept_run, trained
from networks import flat, make_data, make_network
from torch import nn

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.file import read_checkpoint

RUN = make_kept_run("cyclic")


def other_data() -> tuple[torch.Tensor, torch.Tensor]:
    features, targets = make_data()
    features[0, 0] += 1e-9
    return features, targets


def cut_short(folder: Path) -> None:
    path = folder / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])


def older_journal(folder: Path) -> None:
    lines = (folder / "journal").read_text().splitlines(keepends=True)
    (folder / "journal").write_text("".join(line for line in lines if line not in {f"step {step}\n" for step in range(5, 8)}))


def other_journal(folder: Path) -> None:
    lines = (folder / "journal").read_text().splitlines(keepends=True)
    (folder / "journal").write_text("".join([lines[0][:-33] + 32 * "0" + "\n", *lines[1:]]))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters())


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    return torch.optim.Adam([{"params": parameters[1:]}, {"params": parameters[:1]}])


def reversed_order(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(reversed(list(model.parameters())))


def partly_frozen() -> nn.Module:
    model = make_network()
    model[0].requires_grad_(False)
    return model


def with_buffer() -> nn.Module:
    model = make_network()
    model.register_buffer("scale", torch.ones(2))
    return model


REFUSED: tuple[tuple[str, dict[str, Any], type[LetheError], str], ...] = (
    ("other data", {"data": other_data()}, InputError, "some records differ"),
    ("fewer data", {"data": tuple(part[:22] for part in make_data())}, InputError, "records: the run says 23"),
    ("other run", {"run": RUN.replace(step_size=0.4)}, InputError, "the checkpoint is not of run"),
    ("release last", {"run": RUN.replace(release="last"), "make": lambda model: None}, InputError, "the checkpoint is not of run"),
    ("other type", {"model": lambda: make_network(torch.float32), "data": make_data(torch.float32)}, InputError, "trained parameters"),
    ("frozen", {"model": partly_frozen}, InputError, "trained parameters are not"),
    ("buffers", {"model": with_buffer}, InputError, "its buffers or frozen parameters"),
    ("no optimiser", {"make": lambda model: None}, InputError, "optimizer: the checkpoint has"),
    ("other optimiser", {"make": lambda model: torch.optim.AdamW(model.parameters())}, InputError, "optimizer: the checkpoint has"),
    ("other groups", {"make": two_groups}, InputError, "optimizer: the checkpoint has"),
    ("other order", {"make": reversed_order}, InputError, "optimizer: the checkpoint has"),
    ("damaged", {"spoil": cut_short}, InputError, "it is damaged"),
    ("no checkpoint", {"spoil": lambda folder: (folder / "checkpoint.pt").unlink()}, InputError, "7 steps were released"),
    ("no journal", {"spoil": lambda folder: (folder / "journal").unlink()}, InputError, "do not belong together"),
    ("another journal", {"spoil": other_journal}, InputError, "do not belong together"),
    ("journal rolled back", {"spoil": older_journal}, InputError, "not of one step"),
    ("same noise", {"noise_generator": lambda: np.random.default_rng(11)}, InputError, "its noise was used"),
)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("change", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_going_on_with_something_else_is_refused(tmp_path: Path, change: dict[str, Any], error: type[LetheError], message: str) -> None:
    folder, spy, model = tmp_path / "kept", Spy(), make_network()
    spy.kill(7, before=False)
    assert trained(folder, RUN, spy, model=model, optimizer=adam(model), noise_generator=np.random.default_rng(11)) is None
    change = dict(change)
    if spoil := change.pop("spoil", None):
        spoil(folder)
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    model = change.pop("model", make_network)()
    optimizer = change.pop("make", adam)(model)
    if "noise_generator" in change:
        change["noise_generator"] = change["noise_generator"]()
    before, random = flat(model), torch.get_rng_state()
    with pytest.raises(error, match=message):
        trained(folder, change.pop("run", RUN), spy, model=model, optimizer=optimizer, **change)
    assert torch.equal(flat(model), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert optimizer is None or not optimizer.state
    kept.setdefault("journal", b"")  # an empty one is as good as none
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == kept


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
def test_a_finished_run_gives_the_same_model_again_and_draws_nothing(tmp_path: Path, release: str) -> None:
    run, spy, model, again = make_kept_run("cyclic", release), Spy(), make_network(), make_network()
    spy.kill(5, before=False)
    assert trained(tmp_path, run, spy) is None
    for network in (model, again):
        result = trained(tmp_path, run, spy, model=network)
        assert result is not None
        assert as_planned(result.run) == run
        drawn = len(spy.steps)
    assert torch.equal(flat(model), flat(again))
    assert drawn == (20 if release == "all" else 22)  # the fourth and fifth step twice


def test_no_noise_and_no_state_of_its_generator_is_on_disk(tmp_path: Path) -> None:
    spy, generator = Spy(), torch.Generator().manual_seed(99)
    state = generator.get_state().numpy().tobytes()
    spy.kill(7, before=False)
    assert trained(tmp_path, RUN, spy, noise_generator=generator) is None
    now = generator.get_state().numpy().tobytes()
    content = read_checkpoint(tmp_path / "checkpoint.pt")

    def tensors(value: Any) -> Iterator[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict | list | tuple):
            for part in value.values() if isinstance(value, dict) else value:
                yield from tensors(part)

    found = [tensor.contiguous().numpy().tobytes() for tensor in tensors(content)]
    assert len(found) > 5
    assert not {state, now} & set(found)


def test_noise_from_a_generator_that_is_on_disk_is_refused(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        with pytest.raises(InputError, match="PyTorch's global generator"):
            trained(tmp_path / "global", RUN, noise_generator=torch.Generator().manual_seed(5))
        with pytest.raises(InputError, match="PyTorch's global generator"):
            trained(tmp_path / "global", RUN, noise_generator=torch.default_generator)
    spy = Spy()
    spy.kill(2, before=False)
    assert trained(tmp_path / "batches", RUN, spy) is None
    with pytest.raises(InputError, match="the batches go on with"):
        trained(tmp_path / "batches", RUN, spy, batch_generator=None, noise_generator=torch.Generator().manual_seed(3))


BUDGETED = make_kept_run("cyclic", noise_multiplier=2.0, neighbours="replace_one", noise_budget=1.0)
"""A step costs 1/2 of the account of its place: two passes of 4 steps are paid for, of the 5 that are planned."""


@pytest.mark.sampled(9)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("step", [1, 2, 5, 8])
def test_a_budget_counts_what_was_drawn_before_a_kill(tmp_path: Path, step: int, before: bool) -> None:
    spy = Spy()
    spy.kill(step, before=before)
    assert trained(tmp_path, BUDGETED, spy) is None
    result = trained(tmp_path, BUDGETED, spy)
    assert result is not None
    # What was journaled counts, whether its noise was drawn or not.
    assert spy.steps == [number for number in range(1, 9) if not (before and number == step)]
    assert result.run.total_steps == 8
    assert result.spent == pytest.approx(1.0)
    again = trained(tmp_path, BUDGETED, spy)
    assert again is not None
    assert len(spy.steps) == 8 - before
    assert again.run == result.run
    assert again.spent == result.spent
    assert torch.equal(flat(again.model), flat(result.model))

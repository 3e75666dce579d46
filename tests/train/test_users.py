"""Training with a user as the unit, by fit and in loops: by hand, with one record each as with records, resumed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS
from networks import (
    IDS,
    RECORDS,
    USERS,
    Loop,
    by_hand,
    fit_network,
    flat,
    losses_of,
    make_data,
    make_network,
    make_network_run,
    make_users_run,
)
from torch import Tensor
from torch.utils.data import Dataset

import lethe
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions
from lethe.train.core.training_records import ORDER
from lethe.train.core.training_records import USERS as SAID_OF_USERS
from lethe.train.data.users import Members, owners_of


@pytest.mark.sampled(24)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("physical_size", [None, 4])
def test_users_of_one_record_are_records_bit_for_bit(design: str, physical_size: int | None) -> None:
    record = make_network_run(design, noise_multiplier=1.0)
    options: dict[str, Any] = {"seed": 5, "physical_size": physical_size}
    one = fit_network(record, **options)
    other = fit_network(record.replace(unit="user"), **{"users": np.arange(RECORDS), **options})
    assert torch.equal(flat(one.model), flat(other.model))
    certified = [lethe.certify(run, 1e-3) for run in (record, record.replace(unit="user"))]
    assert certified[0].epsilon == certified[1].epsilon
    assert certified[0].guarantee == certified[1].guarantee
    assert other.run == record.replace(unit="user", seeded=True)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("physical_size", [None, 1, 2])
def test_training_is_the_recursion_of_users(design: str, physical_size: int | None) -> None:
    run, generators = make_users_run(design), [torch.Generator().manual_seed(3) for _ in range(2)]
    expected = by_hand(make_network(), make_data(), run, generators[0], lambda user, step: np.flatnonzero(user == IDS))
    options: dict[str, Any] = {"users": IDS, "batch_generator": generators[1], "physical_size": physical_size}
    fitted = fit_network(run, **options)
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 2])
def test_of_a_user_with_many_records_some_take_part(physical_size: int | None) -> None:
    def some(user: int, step: int) -> list[int]:
        records = torch.arange(RECORDS)[chosen.rows_of(slice(user, user + 1), step)[0]].tolist()
        assert set(records) <= set(np.flatnonzero(user == IDS))
        return records

    run, options = make_users_run("cyclic"), {"users": IDS, "seed": 11, "physical_size": physical_size}
    chosen = Members(owners_of(IDS), most=2, seed=11)
    fitted = fit_network(run, **{"records_per_user": 2, **options})
    expected = by_hand(make_network(), make_data(), run, torch.Generator(), some)
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)
    everything = fit_network(run, **options)
    assert not torch.allclose(flat(fitted.model), flat(everything.model), rtol=1e-6)


def test_one_users_data_move_a_step_by_the_bound_at_most() -> None:
    """Whatever the user's records are, and how many: 100 of them, duplicates, huge ones."""
    run = make_users_run("full", steps=1, noise_multiplier=0.0, neighbours="replace_one")
    features, targets = make_data()
    reach = 2 * run.step_size * run.clip_norm / run.batch_size
    others = torch.from_numpy(IDS != 3)

    def after(mine: Tensor, classes: Tensor) -> Tensor:
        ids = torch.cat([torch.from_numpy(IDS)[others], torch.full((len(mine),), 3)])
        data = (torch.cat([features[others], mine]), torch.cat([targets[others], classes]))
        return flat(fit_network(run, data=data, users=ids, isolation="declared").model)

    random = torch.Generator().manual_seed(1)
    row = torch.randn(1, 4, dtype=torch.float64, generator=random)
    datasets = [
        (row, torch.tensor([0])),
        (row.repeat(100, 1), torch.full((100,), 1)),
        (1e6 * torch.randn(100, 4, dtype=torch.float64, generator=random), torch.full((100,), 2)),
        (features[:5], targets[:5]),
    ]
    found = [after(*one) for one in datasets]
    gaps = [float((one - other).norm()) for one in found for other in found]
    assert max(gaps) <= reach * (1 + 1e-12)
    assert max(gaps) >= 0.5 * reach  # so that twice the bound of a mutation would be seen


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Each reading of a record adds noise of its own, and is written down."""

    def __init__(self) -> None:
        self.features, self.targets = make_data()
        self.random = torch.Generator().manual_seed(0)
        self.read: list[tuple[int, Tensor]] = []

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        view = self.features[index] + torch.randn(4, dtype=torch.float64, generator=self.random)
        self.read.append((index, view))
        return view, self.targets[index]


def test_views_of_a_record_are_averaged_before_the_clip() -> None:
    run, data = make_network_run("full", steps=1), Augmented()
    fitted = fit_network(run, data=data, views=3)
    assert fitted.run == run
    read = data.read[-3 * RECORDS :]
    assert [index for index, _ in read] == [record for record in range(RECORDS) for _ in range(3)]
    views = torch.stack([view for _, view in read]), data.targets.repeat_interleave(3)
    expected = by_hand(make_network(), views, run, torch.Generator(), lambda record, step: [3 * record, 3 * record + 1, 3 * record + 2])
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)


def test_training_goes_on_with_the_same_users_only(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(step: int, steps: int) -> None:
        if step == 4:
            raise Stop

    run = make_users_run("shuffled")
    expected = fit_network(run, users=IDS, records_per_user=2, seed=6)
    options: dict[str, Any] = {"seed": 6, "checkpoints": Checkpoints(folder=tmp_path / "kept", every=1)}
    with pytest.raises(Stop):
        fit_network(run, **{"users": IDS, "records_per_user": 2, "progress": stop, **options})
    other = np.where(IDS == 8, 7, IDS)
    other[0] = 8
    for changed in ({"users": other, "records_per_user": 2}, {"users": IDS}, {"users": IDS, "records_per_user": 2, "views": 2}):
        with pytest.raises(InputError, match="other users"):
            fit_network(run, **{**changed, **options})
    again = fit_network(run, **{"users": IDS, "records_per_user": 2, **options})
    assert again.run == expected.run
    assert again.diagnostics.steps == run.total_steps


SEEDED: dict[str, Any] = {"seed": 5, "batch_generator": None, "noise_generator": None}


def users_run(design: str = "poisson", **changes: Any) -> Run:
    return make_users_run(design, **{"noise_multiplier": 1.0, **changes})


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("physical_size", "most"), [(None, None), (2, None), (1, None), (2, 2), (1, 2)])
@pytest.mark.parametrize("design", ["full", "shuffled", "poisson"])
def test_a_loop_trains_as_fit_does(design: str, physical_size: int | None, most: int | None) -> None:
    run = users_run(design)
    options: dict[str, Any] = {"physical_size": physical_size, "users": IDS, "records_per_user": most}
    fitted = fit_network(run, **{"seed": 5, **options})
    loop = Loop(run, **SEEDED, **options)
    recorded = loop.whole()
    # Within one layer rows are added in another order where all rows of a user pass through the model together.
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-13 if physical_size == 1 else 0)
    assert recorded == fitted.run
    assert {*(claim.detail for claim in SAID_OF_USERS), ORDER.detail} <= set(loop.engine.declared)


def test_without_a_run_a_batch_size_counts_users() -> None:
    model = make_network()
    words: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-3, "epochs": 2, "batch_size": 3}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), make_data(), **words, options=TrainOptions(users=IDS))
    run = engine.run
    assert (run.unit, run.records, run.batch_size, run.total_steps) == ("user", USERS, 3, 2 * math.ceil(USERS / 3))

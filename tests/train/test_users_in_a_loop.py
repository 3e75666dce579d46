"""Users as the unit in a loop of one's own: as `fit` trains them, and with one record each as records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import batches as batches_of
from networks import CROSS_ENTROPY, RECORDS, flat, make_data, make_network, make_network_run
from private_loops import Loop, losses_of
from torch import Tensor

import lethe
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, fit
from lethe.train.core.declared import ORDER
from lethe.train.core.declared import USERS as SAID_OF_USERS

DESIGNS = ["full", "cyclic", "shuffled_once", "shuffled", "poisson", "without_replacement", "balls_in_bins"]
USERS = 9
# 23 records of 9 users with 1 to 6 records each, in no order.
IDS = np.array([8, 3, 3, 0, 1, 2, 3, 4, 8, 5, 6, 7, 0, 3, 3, 1, 8, 5, 3, 2, 4, 8, 0])
SEEDED: dict[str, Any] = {"seed": 5, "batch_generator": None, "noise_generator": None}


def users_run(design: str = "poisson", **changes: Any) -> Run:
    batches = batches_of(design, 3)
    return make_network_run(design, **{"records": USERS, "batches": batches, "unit": "user", "noise_multiplier": 1.0, **changes})


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_a_loop_trains_as_fit_does")
@pytest.mark.parametrize("physical_size", [None, 4])
@pytest.mark.parametrize("design", DESIGNS)
def test_users_of_one_record_are_records_bit_for_bit(design: str, physical_size: int | None) -> None:
    record = make_network_run(design, noise_multiplier=1.0)
    one = Loop(record, physical_size=physical_size, **SEEDED)
    other = Loop(record.replace(unit="user"), physical_size=physical_size, users=np.arange(RECORDS), **SEEDED)
    recorded = [one.whole(), other.whole()]
    assert torch.equal(flat(one.model), flat(other.model))
    assert recorded[1] == recorded[0].replace(unit="user")
    certified = [lethe.certify(run, 1e-3) for run in recorded]
    assert certified[0].guarantee == certified[1].guarantee
    assert one.engine.get_epsilon(1e-3) == other.engine.get_epsilon(1e-3) == certified[0].epsilon


@pytest.mark.slow
@pytest.mark.sampled(15)
@pytest.mark.parametrize(("physical_size", "most"), [(None, None), (2, None), (1, None), (2, 2), (1, 2)])
@pytest.mark.parametrize("design", ["full", "shuffled", "poisson"])
def test_a_loop_trains_as_fit_does(design: str, physical_size: int | None, most: int | None) -> None:
    run = users_run(design)
    options: dict[str, Any] = {"physical_size": physical_size, "users": IDS, "records_per_user": most}
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, seed=5, **options)
    loop = Loop(run, **SEEDED, **options)
    recorded = loop.whole()
    # Within one layer rows are added in another order where all rows of a user pass through the model together.
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-13 if physical_size == 1 else 0)
    assert recorded == fitted.run
    assert {SAID_OF_USERS, ORDER} <= set(loop.engine.declared)


@pytest.mark.slow
def test_a_certificate_of_a_loop_is_about_users() -> None:
    run = users_run("shuffled", steps=2)
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, users=IDS, seed=5)
    loop = Loop(run, users=IDS, **SEEDED)
    loop.whole()
    certificate, other = lethe.certify(loop.engine.record(), 1e-3), lethe.certify(fitted, 1e-3)
    assert certificate.guarantee == other.guarantee
    said = certificate.explain().partition("\n")[0]
    assert said == other.explain().partition("\n")[0]
    assert "user" in said
    assert "all records of a user have its id" in certificate.explain()
    assert "stand in the order of its rows" in certificate.explain()
    assert "stand in the order of its rows" not in other.explain()
    assert loop.engine.get_epsilon(1e-3) == certificate.epsilon
    with pytest.raises(InputError, match="delta"):
        loop.engine.get_epsilon(1 / USERS)


@pytest.mark.slow
def test_all_rows_of_a_batchs_users_are_delivered_together() -> None:
    loop = Loop(users_run("full", steps=2, noise_multiplier=0.0), physical_size=4, users=IDS)
    features, _ = make_data()
    delivered: list[Tensor] = []
    for batch in loop.loader:
        delivered.append(batch[0])
        assert bool(loop.engine.counted.all())
        loop.use(batch)
    sizes = np.bincount(IDS)
    rows = [int(sizes[start : start + 4].sum()) for start in (0, 4, 8)]
    assert [len(inputs) for inputs in delivered] == 2 * rows
    order = np.argsort(IDS, kind="stable")
    torch.testing.assert_close(torch.cat(delivered[:3]), features[torch.from_numpy(order)], rtol=0, atol=0)


@pytest.mark.slow
def test_a_user_is_clipped_once_and_batches_without_users_take_their_steps() -> None:
    """One user with 1000 rows of one kind is worth one unit of C: no more than a user with one of them."""
    moved: list[Tensor] = []
    for copies in (1, 1000):
        features, targets = make_data()
        features, targets = features[:1].repeat(copies, 1), targets[:1].repeat(copies)
        run = make_network_run("full", records=1, unit="user", steps=1)
        loop = Loop(run.replace(noise_multiplier=0.0), data=(features, targets), users=np.zeros(copies, dtype=int))
        before = flat(loop.model)
        loop.whole()
        moved.append(flat(loop.model) - before)
    assert float(moved[0].norm()) == pytest.approx(0.5 * 0.4, rel=1e-8)  # the record's gradient is longer than C
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-8, atol=1e-12)
    seldom = users_run(batches={"design": "poisson", "size": 1}, steps=30, noise_multiplier=0.0)
    loop = Loop(seldom, users=IDS, **SEEDED)
    empty = 0
    for batch in loop.loader:
        empty += not bool(loop.engine.counted.any())
        loop.use(batch)
    assert empty
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), seldom, users=IDS, seed=5)
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-14)


@pytest.mark.nightly(by_day="test_training_goes_on_with_the_same_users_only")
@pytest.mark.slow
def test_training_resumes_with_the_same_users_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SEEDED, "checkpoints": Checkpoints(folder=tmp_path / "kept", every=1)}
    run = users_run("shuffled")
    loop = Loop(run, users=IDS, records_per_user=2, **options)
    for batch in loop.loader:
        loop.use(batch)
        if loop.engine.steps == 4:
            break
    loop.engine.save()
    loop.engine.close()
    other = np.where(IDS == 8, 7, IDS)
    other[0] = 8
    for changed in ({"users": other, "records_per_user": 2}, {"users": IDS}):
        with pytest.raises(InputError, match="other users"):
            Loop(run, **changed, **options)
    again = Loop(run, users=IDS, records_per_user=2, **options)
    assert again.engine.resumed == 4
    assert again.whole() == run.replace(seeded=True)


@pytest.mark.parametrize(
    ("changes", "given", "said"),
    [
        ({}, {}, "the run says user; it needs users"),
        ({"unit": "record", "records": RECORDS}, {"users": IDS}, "the run says record; users are given"),
        ({"unit": "record", "records": RECORDS}, {"records_per_user": 2}, "records_per_user: given without users"),
        ({}, {"users": IDS[:-1]}, "got 22 ids for 23 records"),
        ({"records": 10}, {"users": IDS}, "the data are of 9 users"),
        ({}, {"users": IDS, "records_per_user": 0}, "records_per_user"),
        ({}, {"users": IDS, "views": 0}, "views: got 0"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Loop(users_run().replace(**changes), **given)


def test_without_a_run_nobody_says_what_a_batch_counts() -> None:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    records = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*make_data()), batch_size=5)
    numbers: dict[str, Any] = {"data_loader": records, "noise_multiplier": 1.0, "max_grad_norm": 1.0, "epochs": 1}
    for given in ({"users": IDS}, {"records_per_user": 2}):
        with pytest.raises(InputError, match=r"the engine has no run.*count.*users"):
            PrivacyEngine().make_private(module=model, optimizer=optimizer, losses=losses_of(model), **numbers, **given)


@pytest.mark.parametrize("physical_size", [None, 1])
def test_losses_are_of_rows_not_of_users(physical_size: int | None) -> None:
    model = make_network()
    loop = Loop(users_run("full"), model=model, losses=lambda batch: losses_of(model)(batch)[:-1], users=IDS, physical_size=physical_size)
    with pytest.raises(InputError, match=r"losses: got shape .*one loss a record"):
        loop.use(next(iter(loop.loader)))

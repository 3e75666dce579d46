"""Users as the unit in a loop of one's own: as `fit` trains them, and with one record each as records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, IDS, USERS, flat, make_data, make_network, make_network_run, make_users_run
from private_loops import Loop, losses_of
from torch import Tensor

import lethe
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.core.training_records import ORDER
from lethe.train.core.training_records import USERS as SAID_OF_USERS

SEEDED: dict[str, Any] = {"seed": 5, "batch_generator": None, "noise_generator": None}


def users_run(design: str = "poisson", **changes: Any) -> Run:
    return make_users_run(design, **{"noise_multiplier": 1.0, **changes})


@pytest.mark.slow
@pytest.mark.sampled(15)
@pytest.mark.parametrize(("physical_size", "most"), [(None, None), (2, None), (1, None), (2, 2), (1, 2)])
@pytest.mark.parametrize("design", ["full", "shuffled", "poisson"])
def test_a_loop_trains_as_fit_does(design: str, physical_size: int | None, most: int | None) -> None:
    run = users_run(design)
    options: dict[str, Any] = {"physical_size": physical_size, "users": IDS, "records_per_user": most}
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, **arguments({"seed": 5, **options}))
    loop = Loop(run, **SEEDED, **options)
    recorded = loop.whole()
    # Within one layer rows are added in another order where all rows of a user pass through the model together.
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-13 if physical_size == 1 else 0)
    assert recorded == fitted.run
    assert {*(claim.detail for claim in SAID_OF_USERS), ORDER.detail} <= set(loop.engine.declared)


@pytest.mark.slow
def test_a_certificate_of_a_loop_is_about_users() -> None:
    run = users_run("shuffled", steps=2)
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), run, options=TrainOptions(users=IDS, seed=5))
    loop = Loop(run, users=IDS, **SEEDED)
    loop.whole()
    certificate, other = lethe.certify(loop.engine.record(), 1e-3), lethe.certify(fitted, 1e-3)
    assert certificate.guarantee == other.guarantee
    said, others = (one.explain().partition("\n")[0] for one in (certificate, other))
    assert said == others
    assert "user" in said
    assert "all records of a user have its id" in certificate.explain()
    assert ORDER.detail in certificate.explain()
    assert ORDER.detail not in other.explain()
    assert loop.engine.epsilon(1e-3, steps_fixed_in_advance=True) == certificate.epsilon
    with pytest.raises(InputError, match="delta"):
        loop.engine.epsilon(1 / USERS, steps_fixed_in_advance=True)


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
    fitted = fit(make_network(), CROSS_ENTROPY, make_data(), seldom, options=TrainOptions(users=IDS, seed=5))
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-14)


def test_without_a_run_a_batch_size_counts_users() -> None:
    model = make_network()
    words: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-3, "epochs": 2, "batch_size": 3}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), make_data(), **words, options=TrainOptions(users=IDS))
    run = engine.run
    assert (run.unit, run.records, run.batch_size, run.total_steps) == ("user", USERS, 3, 2 * math.ceil(USERS / 3))

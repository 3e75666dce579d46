"""The best attack on the smallest problem: two neighbouring data sets of two records, many fits, and how well they are told apart."""

import math

import numpy as np
import pytest
import torch

from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.choice.mechanism import Penalties, RandomSources
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.run.losses import SmoothedHinge

FITS = 500
PENALTIES = Penalties(ridge=8.0, l1=0.0)


def scores(plan, label: float, present: float, loss: SmoothedHinge, seed: int) -> np.ndarray:
    """Released weights of one feature; for losses of one weight the likelihood ratio grows with it."""
    table, targets = np.array([[present], [0.0]]), np.array([label, 0.0])
    records = Records(table, targets, loss=loss, feature_norm=1.0, intercept=False, order=np.arange(2))
    draws = RandomSources(
        None,
        norm=None,
        batches=torch.Generator().manual_seed(seed),
        noise=torch.Generator().manual_seed(seed + 1),
        mechanism=np.random.default_rng(seed),
        seeded=True,
    )
    return np.array([plan.train(records, draws, PENALTIES).weights[0, 0] for _ in range(FITS)])


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize(
    ("name", "sharp"),
    [
        ("output_perturbation", 0.8),
        pytest.param("pass_ends", 0.4, marks=pytest.mark.slow),
        pytest.param("cyclic", 0.4, marks=pytest.mark.slow),
        pytest.param("objective_perturbation", 0.3, marks=pytest.mark.slow),
    ],
)
def test_no_threshold_tells_neighbours_apart_better_than_certified(name: str, sharp: float, neighbours: str) -> None:
    # A wide hinge, whose slope is -1 and 1 for the two labels wherever these weights are: the gradients are as far apart as can be.
    loss = SmoothedHinge(feature_norm=1.0, width=0.05)
    asked = {"passes": 10} if name in ("pass_ends", "cyclic") else {}
    facts = PublicFacts(records=2, columns=1, loss=loss, intercept=False, neighbours=neighbours, ridge=PENALTIES.ridge, **asked)
    budget = PrivacyBudget(epsilon=3.0, delta=1e-3)
    plan = choose(name, facts, budget).plan
    high = scores(plan, 1.0, 1.0, loss, seed=10)
    low = scores(plan, 0.0, 1.0, loss, seed=20) if neighbours == "replace_one" else scores(plan, 0.0, 0.0, loss, seed=20)
    statement = plan.train(
        Records(np.zeros((2, 1)), np.zeros(2), loss=loss, feature_norm=1.0, intercept=False),
        RandomSources(None, norm=None, batches=torch.Generator(), noise=torch.Generator(), mechanism=None, seeded=False),
        PENALTIES,
    ).statement
    best = 0.0
    for epsilon in (0.0, 0.5, 1.0):
        # The threshold is chosen on one half and judged on the other.
        half = FITS // 2
        grid = np.quantile(np.concatenate([high[:half], low[:half]]), np.linspace(0.02, 0.98, 49))
        gains = [(high[:half] > cut).mean() - math.exp(epsilon) * (low[:half] > cut).mean() for cut in grid]
        cut = grid[int(np.argmax(gains))]
        p, q = (high[half:] > cut).mean(), (low[half:] > cut).mean()
        error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / half)
        measured = p - math.exp(epsilon) * q
        assert measured - 4.0 * error <= statement.delta(epsilon)
        if epsilon == 0.0:
            best = measured / statement.delta(epsilon)
    # The attack is no weak one: it reaches most of what is certified.
    assert best > sharp

"""Runs, events and accountants that the tests of lethe.integrations.dp_accounting share."""

from typing import Any

from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from helpers import batches as batches_of

import lethe
from lethe.integrations.dp_accounting import LetheAccountant

ADD, REPLACE, ZERO = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL
RELATIONS = {"add_or_remove": ADD, "replace_one": REPLACE, "zero_out": ZERO}
DELTAS = (1e-4, 1e-5, 1e-9)
MIXTURE = lethe.guarantees.GDPMixture((0.1, 0.5, 1.0, 2.0), (0.4, 0.3, 0.2, 0.1))


def run_of(design: str = "cyclic", neighbours: str = "replace_one", **changes: Any) -> lethe.Run:
    batches = batches_of(design, 60)
    fields: dict[str, Any] = {
        "records": 600,
        "batches": batches,
        "passes": 4,
        "step_size": 0.5,
        "noise_multiplier": 4.0,
        "loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0},
        "release": "last",
        "neighbours": "replace_one",
    }
    return lethe.Run(**(fields | {"neighbours": neighbours} | changes))


def gaussian(noise: float) -> Any:
    return dp_event.GaussianDpEvent(noise)


def poisson(probability: float, noise: float) -> Any:
    return dp_event.PoissonSampledDpEvent(probability, gaussian(noise))


def losses(relation: Any) -> PLDAccountant:
    """Their accountant on a coarser grid: its error grows with the square of the interval."""
    return PLDAccountant(relation, 1e-3)


def spent(relation: Any, *events: Any, delta: float = 1e-5) -> float:
    accountant = LetheAccountant(relation)
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(delta)

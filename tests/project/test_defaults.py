"""What a run leaves out is taken as what claims least: saying more of it never costs more."""

from functools import cache
from typing import Any

import pytest
from helpers import DESIGNS, LOSSES, REGULARISERS, batches

import lethe
from lethe.run.batches import DESIGNS as CLASSES

DELTA = 1e-5
BARE: dict[str, Any] = {
    "records": 100,
    "passes": 5,
    "step_size": 0.5,
    "clip_norm": 1.0,
    "noise_multiplier": 5.0,
    "release": "last",
    "neighbours": "replace_one",
}
CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}


def epsilon(design: str, **said: Any) -> float:
    return lethe.certify(lethe.Run(**{**BARE, "batches": batches(design, 10), **said}), DELTA).epsilon


@cache
def _left_out(design: str) -> float:
    return epsilon(design)


@cache
def _convex(design: str) -> float:
    return epsilon(design, loss=CONVEX)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_relation_left_out_is_the_one_that_costs_most(design: str) -> None:
    """Zeroing out is replacing by a record without gradient, and with a public divisor so is removing."""
    left_out = epsilon(design)
    assert left_out == epsilon(design, neighbours="replace_one")
    relations = ["zero_out", *(["add_or_remove"] if "add_or_remove" in CLASSES[design].neighbours else [])]
    for relation in relations:
        assert epsilon(design, neighbours=relation) <= left_out


@pytest.mark.sampled(12)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_loss_left_out_is_one_of_which_nothing_is_known(design: str, loss: dict[str, Any]) -> None:
    left_out = _left_out(design)
    assert left_out == epsilon(design, loss={"kind": "unknown"})
    assert epsilon(design, loss=loss) <= left_out * (1 + 1e-9)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("regulariser", REGULARISERS)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_regulariser_left_out_is_one_of_which_nothing_is_known(design: str, regulariser: Any) -> None:
    assert epsilon(design, loss=CONVEX, regulariser=regulariser) <= _convex(design) * (1 + 1e-9)


def test_whether_a_scalar_loss_is_convex_must_be_said() -> None:
    with pytest.raises(lethe.InputError, match=r"loss\.weak_convexity: missing; whether the scalar loss is convex must be said") as caught:
        lethe.Run(**BARE, batches=batches("cyclic", 10), loss={"kind": "generalised_linear", "smoothness": 1.0})
    assert "weak_convexity: 0 for a convex loss" in str(caught.value)


def test_what_is_left_out_of_a_claim_s_evidence_is_declared() -> None:
    certificate = lethe.certify(lethe.Run(**BARE, batches=batches("cyclic", 10), loss=LOSSES[-1]), DELTA)
    assert {finding.evidence for finding in certificate.findings} <= {"declared", "checked"}


def test_an_accountant_s_relation_must_be_said() -> None:
    interop = pytest.importorskip("lethe.integrations.dp_accounting")
    with pytest.raises(TypeError, match="neighboring_relation"):
        interop.LetheAccountant()

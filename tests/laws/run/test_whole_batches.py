"""A design whose every batch holds every record is the full batch, whatever its name, and costs the same."""

from typing import Any

import pytest
from helpers import EXACT_DESIGNS, SIZED_DESIGNS, make_run
from helpers import batches as batches_of

import lethe
from lethe.accounting.cumulative import cumulative_privacy
from lethe.theorems.steps import step_constants

WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0}
HOLDER = {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}
BALL, RIDGE = {"kind": "ball", "radius": 0.05}, {"kind": "ridge", "strength": 0.5}
FIXED = tuple(name for name in EXACT_DESIGNS if name in SIZED_DESIGNS)
CASES: tuple[dict[str, Any], ...] = (
    {},
    {"loss": STRONG, "regulariser": BALL},
    {"loss": WEAK, "regulariser": RIDGE},
    {"loss": HOLDER, "regulariser": BALL},
    {"clip_norm": 0.5, "regulariser": RIDGE},
    {"noise_multiplier": [9.0, 3.0, 5.0], "passes": 3},
    {"steps": 3, "release": "all"},
    {"passes": 3, "noise_at": "pass_ends", "noise_multiplier": [4.0, 0.0, 4.0]},
)


def _whole(design: str, changes: dict[str, Any], relation: str) -> lethe.Run:
    batches = batches_of(design, 40)
    return make_run(**{"records": 40, "noise_multiplier": 6.0, "neighbours": relation, **changes, "batches": batches})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("changes", CASES)
@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
def test_batches_of_all_records_cost_what_full_batches_cost(changes: dict[str, Any], relation: str) -> None:
    full = lethe.certify(_whole("full", changes, relation), 1e-3)
    for design in ("poisson", "balls_in_bins", *(FIXED if relation != "add_or_remove" else ())):
        run = _whole(design, changes, relation)
        certificate = lethe.certify(run, 1e-3)
        assert (certificate.epsilon, certificate.theorem) == (full.epsilon, full.theorem)
        assert certificate.lipschitz == full.lipschitz
        assert certificate.run == run


def test_a_filter_counts_them_as_full_batches_too() -> None:
    changes = {"steps": 3, "release": "all", "noise_budget": 1.0}
    full = lethe.certify(_whole("full", changes, "zero_out"), 1e-3)
    assert lethe.certify(_whole("poisson", changes, "zero_out"), 1e-3).epsilon == full.epsilon


def test_plan_and_the_beginnings_of_a_run_agree() -> None:
    full, poisson = (_whole(design, {"regulariser": RIDGE}, "add_or_remove") for design in ("full", "poisson"))
    assert lethe.plan(poisson, 1.0, 1e-3).noise_multiplier == lethe.plan(full, 1.0, 1e-3).noise_multiplier
    told = [cumulative_privacy(run, 1e-3, points=3) for run in (full, poisson)]
    assert told[0] == told[1]


def test_a_cap_that_can_act_is_still_paid_for() -> None:
    capped = make_run(
        records=40, batches={"design": "poisson", "size": 40, "truncate_at": 41}, neighbours="add_or_remove", regulariser=RIDGE
    )
    assert (
        lethe.certify(capped, 1e-3).epsilon
        == lethe.certify(_whole("full", {"noise_multiplier": 5.0, "regulariser": RIDGE}, "add_or_remove"), 1e-3).epsilon
    )
    cut = make_run(records=40, batches={"design": "poisson", "size": 40, "truncate_at": 40}, neighbours="add_or_remove")
    with pytest.raises(lethe.InputError, match="cap of 40 records"):
        lethe.certify(cut, 1e-3)


def test_a_single_bin_holds_all_records_and_its_steps_may_contract() -> None:
    """floor(100 / 60) = 1 bin: every step is that of all 100 records, divided by 60."""
    run = make_run(batches={"design": "balls_in_bins", "size": 60}, loss=STRONG)
    steps = step_constants(run)
    assert steps is not None
    assert steps.slack == 0.0
    assert steps.constant.constant == pytest.approx(1 - 0.5 * 0.1 * 100 / 60, rel=1e-12)

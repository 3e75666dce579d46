"""Planners, exporters, trainers and recorders refuse by name what they do not know, and draw no batches without a sampler.

Whoever knows independent noise only refuses a run with correlated noise by its kind, and never takes one for the other.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import made_up_runs as runs
import numpy as np
import pytest
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import make_run
from made_up_runs import DELTA, refused

import lethe
from lethe.accounting.certify import cumulative_privacy, evaluate_theorems
from lethe.accounting.compare import compare
from lethe.certificates.findings import first_failure
from lethe.errors import HypothesisError, InputError
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.noise_allocation.allocate import allocate
from lethe.theorems.base import Theorem
from lethe.theorems.composition import spent_budgets, touch_mus
from lethe.theorems.registry import ALL
from lethe.train.core.recorder import Recorder

DOERS: dict[str, Callable[[lethe.Run], Any]] = {
    "evaluate_theorems": evaluate_theorems,
    "certify": lambda run: lethe.certify(run, DELTA),
    "compare": lambda run: compare(run, DELTA),
    "cumulative": lambda run: cumulative_privacy(run, DELTA, points=2),
    "plan": lambda run: lethe.plan(run, epsilon=1.0, delta=DELTA),
    **runs.NOISE_PLANNERS,
    **runs.TRAINERS,
}


@pytest.mark.parametrize("name", runs.UNKNOWN)
@pytest.mark.parametrize("doer", DOERS)
def test_nobody_takes_a_word_that_he_does_not_know(doer: str, name: str) -> None:
    refused(name, lambda: DOERS[doer](runs.UNKNOWN[name]()))


@pytest.mark.parametrize("schedule", ["uniform", "influence", "joint"])
def test_a_public_slot_is_planned_as_one(schedule: Any) -> None:
    said, known = (allocate(runs.of_design(one), 1.0, DELTA, schedule=schedule).run for one in (runs.PublicSlots, "cyclic"))
    assert np.array_equal(said.noise_multipliers, known.noise_multipliers)


@pytest.mark.parametrize("design", [runs.PublicHeaps, runs.SecretHeaps, runs.FreshHeaps])
def test_batches_of_unknown_size_have_no_joint_schedule(design: type[runs.MadeUp]) -> None:
    refused(design.design, lambda: allocate(runs.of_design(design), 1.0, DELTA, schedule="joint"))


@pytest.mark.parametrize("name", runs.UNKNOWN)
def test_no_exporter_takes_a_word_that_it_does_not_know(name: str) -> None:
    run, certificate = runs.UNKNOWN[name](), lethe.certify(make_run(), DELTA)
    refused(name, lambda: replace(certificate, run=run))
    object.__setattr__(certificate, "run", run)
    refused(name, lambda: to_dp_event(certificate))
    accountant = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    refused(name, lambda: accountant.compose(LastIterateDpEvent(run, "monday")))


@pytest.mark.parametrize("design", [runs.PublicSlots, runs.PublicHeaps, runs.SecretHeaps, runs.FreshHeaps, runs.DrawnTogether])
@pytest.mark.parametrize("trainer", runs.TRAINERS)
def test_nobody_draws_batches_of_a_design_without_a_sampler(trainer: str, design: type[runs.MadeUp]) -> None:
    """Batches of exact size whose order is public could be drawn in many ways: the design's own is not known."""
    clip = {} if trainer in ("fit_linear", "fit_head") else {"clip_norm": 1.0, "loss": {"kind": "unknown"}}
    refused(design.design, lambda: runs.TRAINERS[trainer](runs.of_design(design, release="all", **clip)))


def test_the_recorder_of_a_public_slot_holds_it_to_its_slots() -> None:
    def record(again: slice) -> lethe.Run:
        run = runs.of_design(runs.PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
        recorder = Recorder(run, seeded=False)
        for step in range(run.total_steps):
            slot = step % 10
            batch = slice(10 * slot, 10 * slot + 10) if step != 10 else again
            recorder.note(step_size=0.5, noise_std=float(run.noise_stds[step]), batch=batch)
        return recorder.run(run, enforced=False)

    assert record(slice(0, 10)) == runs.of_design(runs.PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
    with pytest.raises(HypothesisError, match="public_slots"):
        record(slice(10, 20))
    refused("public_heaps", lambda: Recorder(runs.of_design(runs.PublicHeaps), seeded=False))


# --- correlated noise ---

KIND = "banded_toeplitz"
NOISE = {"kind": KIND, "coefficients": [1.0, 0.5]}


def correlated(**changes: Any) -> lethe.Run:
    return make_run(noise=NOISE, **changes)


@runs.BY_RELEASE
@runs.BY_THEOREM
def test_two_theorems_alone_know_correlated_noise(theorem: Theorem, release: str) -> None:
    for design in ("cyclic", "full", "shuffled_once", "balls_in_bins"):
        batches = {"design": design} if design == "full" else {"design": design, "size": 10}
        run = correlated(release=release, batches=batches)
        if theorem.correlated:
            assert theorem.examine(run.uncorrelated)[0].name == "noise"
            continue
        (finding,) = theorem.examine(run)
        assert (finding.status, finding.name) == ("fails", "noise")
        refused(KIND, lambda run=run: theorem.bound(run))


@pytest.mark.parametrize("design", ["shuffled", "poisson", "without_replacement"])
def test_an_order_that_is_not_kept_is_refused(design: str) -> None:
    """By the run itself; and of one that was changed behind its back by every theorem."""
    batches = make_run(batches={"design": design, "size": 10}, release="all").batches
    refused(design, lambda: correlated(batches=batches))
    run = correlated(release="all")
    vars(run)["batches"] = batches
    failures = {failure.name for theorem in ALL if (failure := first_failure(theorem.examine(run))) is not None}
    assert failures == {"noise", "order", "random batches", "batches"}
    refused(design, lambda: lethe.certify(run, DELTA))


INDEPENDENT: dict[str, Callable[[lethe.Run], Any]] = {
    "noise_multipliers": lambda run: run.noise_multipliers,
    "noise_stds": lambda run: run.noise_stds,
    "relative_noise": lambda run: run.relative_noise,
    "record_noise": lambda run: run.record_noise,
    "touches": touch_mus,
    "budgets": spent_budgets,
    **{name: planner for name, planner in runs.NOISE_PLANNERS.items() if name not in ("allocate pass_ends", "allocate correlated")},
    **runs.INFLUENCES,
    "draw_batches": runs.TRAINERS["draw_batches"],
}


@pytest.mark.parametrize("who", INDEPENDENT)
def test_correlated_noise_is_refused_by_its_kind(who: str) -> None:
    refused(KIND, lambda: INDEPENDENT[who](correlated(release="all", clip_norm=1.0)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_at": "pass_ends"}, "noise_at = pass_ends"),
        ({"noise_at": "pass_ends", "pass_weights": 1.0}, "pass_weights"),
        ({"noise_budget": 1.0, "release": "all"}, "noise_budget"),
        ({"noise_multiplier": [5.0] * 49 + [6.0]}, "one number"),
        ({"noise_multiplier": {"schedule": "exponential", "first": 5.0, "ratio": 0.9}}, "one number"),
        ({"noise": {"kind": "made_up"}}, "made_up"),
        ({"noise": {"coefficients": [1.0]}}, "kind: missing"),
        ({"noise": "banded"}, "mapping"),
        ({"noise": 1.0}, "noise_multiplier"),
        ({"noise": {"kind": KIND, "coefficients": []}}, "coefficients"),
        ({"noise": {"kind": KIND, "coefficients": [0.0, 1.0]}}, "strategy"),
        ({"noise": {"kind": KIND, "coefficients": [1.0, -0.5]}}, "strategy"),
        ({"noise": {"kind": KIND, "coefficients": [1.0, float("nan")]}}, "noise"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [0.5], "decays": [1.0]}}, "decays"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [0.5], "decays": [0.5, 0.1]}}, "decays"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [-0.5], "decays": [0.5]}}, "scales"),
        ({"noise": {"kind": "banded_inverse", "coefficients": [1.0, 0.5]}}, "none above 0"),
        ({"noise": {"kind": "banded_inverse", "coefficients": [1.0, -0.5, -0.6]}}, "sum to 0 or more"),
        ({"noise": {"kind": "banded_inverse", "coefficients": [0.0]}}, "above 0"),
        ({"noise": {"kind": "lower_triangular", "file": "none.npy", "sha256": "0" * 64}}, "no such file"),
        ({"noise": {"kind": "lower_triangular", "file": "none.npy", "sha256": "0"}}, "sha256"),
    ],
)
def test_what_does_not_go_with_correlated_noise_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_run(**{"noise": NOISE, **changes})

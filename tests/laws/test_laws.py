"""Laws that every theorem of the registry obeys, the published ones too: theorem x law."""

import functools
import itertools
import math
from typing import Any

import pytest
from exact_runs import EXACT, Exact
from helpers import (
    DESIGNS,
    EXACT_DESIGNS,
    LINEAR_LOSSES,
    LOSSES,
    NEIGHBOURS,
    REGULARISERS,
    SCHEDULES,
    SLOT_DESIGNS,
    admits,
    batches,
    make_run,
)
from how_many import by_night, some

import lethe
from lethe.calculus.any_guarantee import noise_scaled
from lethe.certificates.findings import first_failure
from lethe.errors import HypothesisError
from lethe.run.losses import LOSSES as LOSS_CLASSES
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import REGULARISERS as REGULARISER_CLASSES
from lethe.run.schedules import SCHEDULES as SCHEDULE_CLASSES
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL, LITERATURE, OURS

DELTA = 1e-5

WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.9, "gradient_bound": 1.0}
CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
HOLDER = {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}
KINKS = {"kind": "holder", "constant": 2.0, "exponent": 0.0, "convex": True, "gradient_bound": 1.0}
BALL = {"kind": "ball", "radius": 0.05}


def _epsilon(theorem: Theorem, run: lethe.Run) -> float | None:
    """None where the theorem refuses."""
    if first_failure(theorem.examine(run)) is not None:
        return None
    return theorem.bound(run).guarantee.epsilon(DELTA)


# Laws share what the theorems say of a run, and what is true of it.
_known = functools.cache(_epsilon)


@functools.cache
def _exact(exact: Exact) -> float:
    return exact.epsilon()


def _runs() -> list[lethe.Run]:
    runs = [make_run(batches=batches(design, 10), noise_multiplier=4.0) for design in DESIGNS]
    runs += [run.replace(release="all") for run in runs]
    runs += [make_run(batches=batches(design, 10), neighbours=relation) for design in ("full", "poisson") for relation in NEIGHBOURS]
    runs += [make_run(batches=batches("balls_in_bins", 10), neighbours="add_or_remove", release="all", noise_multiplier=2.0)]
    runs += [make_run(noise_at="pass_ends"), make_run(regulariser=[{"kind": "ridge", "strength": 0.5}, BALL])]
    runs += [make_run(loss=loss, clip_norm=1.0) for loss in (WEAK, CONVEX)]
    runs += [make_run(batches=batches("shuffled_once", 10), neighbours="zero_out", release="all")]
    # Where the published bounds live: strongly convex losses, small domains, the step sizes of a corollary, many random batches.
    runs += [make_run(batches=batches(design, 10), loss=STRONG) for design in ("full", "cyclic", "shuffled_once", "without_replacement")]
    runs += [make_run(loss=WEAK, step_size=step_size) for step_size in (0.4, 2.0)]
    runs += [make_run(loss=loss, regulariser=BALL) for loss in (WEAK, CONVEX)]
    runs += [make_run(batches=batches("full", 10), loss=loss, regulariser=BALL) for loss in (CONVEX, HOLDER, KINKS)]
    random: dict[str, Any] = {"loss": CONVEX, "regulariser": BALL, "step_size": 0.25, "steps": 300, "noise_multiplier": 12.0}
    runs += [make_run(batches=batches(design, 10), neighbours="zero_out", **random) for design in ("poisson", "without_replacement")]
    runs += [make_run(noise_at="pass_ends", pass_weights=1.0, **changes) for changes in ({}, {"loss": STRONG})]
    runs += [make_run(release="all", noise_budget=1.0)]
    for design in ("full", "cyclic", "shuffled_once", "balls_in_bins"):
        runs.append(
            make_run(batches=batches(design, 10), noise={"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}, release="all")
        )
    few = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6]}
    runs.append(make_run(batches={"design": "cyclic_poisson", "size": 10, "groups": 2}, noise=few, release="all", noise_multiplier=4.0))
    return runs


RUNS = _runs()
_EXAMINED = [(theorem, run, first_failure(theorem.examine(run)) is None) for theorem in ALL for run in RUNS]
CASES = [(theorem, run) for theorem, run, holds in _EXAMINED if holds]
REFUSED = [(theorem, run) for theorem, run, holds in _EXAMINED if not holds]
# A filter's budget is what it is, whatever noise was chosen.
OUR_CASES = [(theorem, run) for theorem, run in CASES if theorem in OURS and not theorem.adaptive]
EVERY_ITERATE = [(theorem, run) for theorem, run in CASES if run.release == "all" and theorem.standing_on(run).usable]
ABOVE_EXACT = [
    (theorem, exact)
    for theorem in ALL
    for exact in EXACT
    if first_failure(theorem.examine(exact.run)) is None and theorem.standing_on(exact.run).usable
]


@functools.cache
def _silent_ends(scale: float) -> list[lethe.Run]:
    """Runs whose last step, which touches some record of every design, is followed by no noise, however much there was before.

    By day one in five: every design and relation, and as seven kinds of changes follow each other, each of those too.
    """
    runs: list[lethe.Run] = []
    for design, relation, noise_at in itertools.product(DESIGNS, NEIGHBOURS, ("every_step", "pass_ends")):
        if relation == "add_or_remove" and design != "poisson":
            continue
        slots = 1 if design == "full" else 10
        noise = [scale] * (3 * slots if noise_at == "every_step" else 3)
        noise[-1] = 0.0
        fields: dict[str, Any] = {"batches": batches(design, 10), "neighbours": relation, "noise_at": noise_at, "noise_multiplier": noise}
        for changes in (
            {"release": "last"},
            {"release": "all"},
            {"release": "last", "loss": CONVEX, "clip_norm": 1e6},  # "never clip"
            {"release": "last", "loss": STRONG, "neighbours": "replace_one"},
            {"release": "last", "loss": WEAK, "regulariser": [{"kind": "ridge", "strength": 0.5}, BALL]},
            {"release": "last", "loss": HOLDER, "regulariser": BALL},
            {"release": "last", "loss": KINKS, "regulariser": BALL},
        ):
            runs.append(make_run(passes=3, **{**fields, **changes}))
    return runs if by_night() else runs[::5]


def _name(value: object) -> str:
    if isinstance(value, Theorem | Exact):
        return value.name
    assert isinstance(value, lethe.Run)
    return f"{value.batches.design}-{value.release}-{value.run_id}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("theorem", ALL, ids=_name)
def test_no_theorem_stumbles_over_a_run(theorem: Theorem) -> None:
    """Each says of each hypothesis that it holds or fails, whatever else fails; what it bounds is a number."""
    for run in RUNS:
        findings = theorem.examine(run)
        assert findings
        if first_failure(findings) is None:
            bound = theorem.bound(run)
            assert bound.guarantee.epsilon(DELTA) >= 0
            assert bound.guarantee.describe()


def test_every_refusal_names_the_theorem_the_hypothesis_and_a_way_out() -> None:
    for theorem, run in REFUSED:
        failure = first_failure(theorem.examine(run))
        assert failure is not None
        assert failure.source
        assert failure.remedy
        with pytest.raises(HypothesisError) as caught:
            theorem.bound(run)
        assert all(part in str(caught.value) for part in (theorem.name, failure.detail, "Do:"))


AT_NIGHT = pytest.mark.nightly(by_day="the same test with another scale")


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=AT_NIGHT), 3e5, pytest.param(1e140, marks=AT_NIGHT)])
@pytest.mark.parametrize("theorem", ALL, ids=_name)
def test_a_run_that_ends_without_noise_is_not_private(theorem: Theorem, scale: float) -> None:
    """Whoever was touched last is seen as it is, in every design: each theorem refuses, or says so, or may not be relied on."""
    for run in _silent_ends(scale):
        if first_failure(theorem.examine(run)) is None and theorem.standing_on(run).usable:
            assert theorem.bound(run).guarantee.epsilon(DELTA) == math.inf, run.to_document()


@pytest.mark.parametrize("scale", [1.0, pytest.param(3e5, marks=AT_NIGHT), pytest.param(1e140, marks=AT_NIGHT)])
def test_no_certificate_of_a_run_that_ends_without_noise_is_finite(scale: float) -> None:
    for run in _silent_ends(scale):
        assert lethe.certify(run, DELTA).epsilon == math.inf, run.to_document()


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_more_noise_never_raises_epsilon(theorem: Theorem, run: lethe.Run) -> None:
    epsilons = [_known(theorem, run.with_noise_scaled(factor)) for factor in (0.5, 1.0, 1.01, 3.0)]
    numbers = [math.inf if epsilon is None else epsilon for epsilon in epsilons]  # a theorem may ask for enough noise
    assert all(more <= less * (1 + 1e-9) for less, more in itertools.pairwise(numbers))


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("theorem", "run"), OUR_CASES, ids=_name)
def test_guarantees_scale_with_the_noise(theorem: Theorem, run: lethe.Run) -> None:
    """What `plan` rests on: the guarantee of c times the noise is the guarantee scaled by c."""
    for factor in (0.7, 2.5):
        scaled = noise_scaled(theorem.bound(run).guarantee, factor).epsilon(DELTA)
        assert scaled == pytest.approx(theorem.bound(run.with_noise_scaled(factor)).guarantee.epsilon(DELTA), rel=1e-6)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_a_json_round_trip_changes_no_bit(theorem: Theorem, run: lethe.Run) -> None:
    again = lethe.Run.from_document(run.to_document())
    assert _epsilon(theorem, again) == _known(theorem, run)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_delta_and_epsilon_agree(theorem: Theorem, run: lethe.Run) -> None:
    guarantee = theorem.bound(run).guarantee
    epsilon = guarantee.epsilon(DELTA)
    if epsilon == math.inf:  # composition of a run with noise at pass ends only
        assert guarantee.delta(1e300) > DELTA
        return
    assert guarantee.delta(epsilon) <= DELTA * (1 + 1e-9)
    assert guarantee.delta(epsilon * 0.99) > DELTA


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_zeroing_out_is_never_dearer_than_replacing(theorem: Theorem, run: lethe.Run) -> None:
    replaced = _known(theorem, run.replace(neighbours="replace_one"))
    zeroed = None if run.bounds_differences_only else _known(theorem, run.replace(neighbours="zero_out"))
    if replaced is not None and zeroed is not None:  # some papers are about one of the two
        assert zeroed <= replaced * (1 + 1e-9)


@pytest.mark.parametrize(("theorem", "run"), EVERY_ITERATE, ids=_name)
def test_nothing_beats_composition_where_every_iterate_is_released(theorem: Theorem, run: lethe.Run) -> None:
    composed = min(filter(None, (_known(one, run) for one in OURS if one.covers == "all")))
    assert theorem.covers == "all"
    epsilon = _known(theorem, run)
    assert epsilon is not None
    assert epsilon >= composed * (1 - 1e-9)


@pytest.mark.parametrize(("theorem", "exact"), ABOVE_EXACT, ids=_name)
def test_no_sound_bound_is_below_the_truth(theorem: Theorem, exact: Exact) -> None:
    """Linear-Gaussian runs, projected chains, drawn touches: exact_runs.py says how each is known."""
    epsilon = _known(theorem, exact.run)
    assert epsilon is not None
    assert epsilon >= _exact(exact) * (1 - 1e-12)


def test_the_truth_is_close_enough_to_catch_a_bound_one_per_cent_too_small() -> None:
    """Where the bounds are exact: each of these theorems, less 1 %, would fall below some exact run."""
    for name in ("optimal-shift", "balls-in-bins", "composition", "correlated-noise", "bok-2024-gd", "kaissis-2021"):
        ratios = [
            epsilon / _exact(exact)
            for theorem, exact in ABOVE_EXACT
            if theorem.name == name and (epsilon := _known(theorem, exact.run)) is not None
        ]
        assert min(ratios) < 1.01, name


def test_the_chosen_certificate_is_never_below_the_truth() -> None:
    for exact in some(EXACT, 6):  # of each theorem: the tests before
        certificate = lethe.certify(exact.run, DELTA, ALL)
        assert certificate.epsilon >= _exact(exact) * (1 - 1e-12)
        assert next(theorem for theorem in ALL if theorem.name == certificate.theorem).standing_on(exact.run).usable


@pytest.mark.parametrize("theorem", ALL, ids=_name)
def test_it_applies_somewhere_refuses_somewhere_and_cites_its_source(theorem: Theorem) -> None:
    assert any(one is theorem for one, _ in CASES)
    assert any(one is theorem for one, _ in REFUSED)
    assert len({one.name for one in ALL}) == len(ALL) == len(OURS) + len(LITERATURE)
    assert theorem.citations
    assert all(citation.key and len(citation.text) > 20 for citation in theorem.citations)
    assert theorem.statement.endswith(".")


def test_the_lists_that_tests_go_through_hold_every_public_class() -> None:
    """So that what is new is tested with the rest."""
    designs = {type(make_run(batches=batches(name, 10)).batches) for name in DESIGNS}
    assert {getattr(lethe.batches, name) for name in lethe.batches.__all__} == designs
    assert {*EXACT_DESIGNS} == {"full", "cyclic", "shuffled_once", "shuffled", "without_replacement"}
    assert {*SLOT_DESIGNS} == {"cyclic", "shuffled_once", "shuffled", "random_allocation", "balls_in_bins"}
    assert {name for name in DESIGNS if admits(name, "add_or_remove")} == {"full", "poisson", "random_allocation", "balls_in_bins"}
    assert {relation for relation in NEIGHBOURS for name in DESIGNS if admits(name, relation)} == {*NEIGHBOURS}
    assert {loss["kind"] for loss in LOSSES} == set(LOSS_CLASSES)
    assert {type(loss) for loss in LINEAR_LOSSES} == {loss for loss in LOSS_CLASSES.values() if issubclass(loss, LinearLoss)}
    single = [one for listed in REGULARISERS for one in (listed if isinstance(listed, list) else [listed]) if one is not None]
    assert {one["kind"] for one in single} == set(REGULARISER_CLASSES)
    plain = {float: "constant", list: "explicit"}
    assert {one["schedule"] if isinstance(one, dict) else plain[type(one)] for one in SCHEDULES} == set(SCHEDULE_CLASSES)

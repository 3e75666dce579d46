"""dp_accounting: certificates exported to it, its events accounted with runs, and no credit left once an earlier iterate is out."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError, calibrate_dp_mechanism, dp_event, mechanism_calibration
from dp_accounting.pld import PLDAccountant, common, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

import lethe
from lethe.calculus.base import stored_fields
from lethe.calculus.guarantees import NotPrivate, Tightest, WithSlack
from lethe.calculus.sampled_gaussian import SampledGaussian
from lethe.interop import IterateDpEvent, LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.interop.together import _convolved, together

ADD, REPLACE, ZERO = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL
RELATIONS = {"add_or_remove": ADD, "replace_one": REPLACE, "zero_out": ZERO}
DELTAS = (1e-3, 1e-5, 1e-9)
PAGE = Path(__file__).resolve().parent.parent / "docs" / "interop.md"
MIXTURE = lethe.GDPMixture((0.1, 0.5, 1.0, 2.0), (0.4, 0.3, 0.2, 0.1))


def run_of(design: str = "cyclic", neighbours: str = "replace_one", **changes: Any) -> lethe.Run:
    batches = {"design": design} if design == "full" else {"design": design, "size": 60}
    fields: dict[str, Any] = {
        "records": 600,
        "batches": batches,
        "passes": 4,
        "step_size": 0.5,
        "noise_multiplier": 4.0,
        "loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0},
    }
    return lethe.Run(**(fields | {"neighbours": neighbours} | changes))


def certificate_with(guarantee: Any, neighbours: str = "zero_out") -> lethe.Certificate:
    run = run_of("full", neighbours)
    return lethe.Certificate(
        run=run, delta=0.1, epsilon=1.0, theorem="a test", guarantee=guarantee, lipschitz=None, findings=(), others=(), citations=()
    )


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


# Exporting


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("mu", [0.2, 0.5, 3.0])
def test_gdp_exports_exactly_for_both_accountants(neighbours: str, mu: float) -> None:
    exported = to_dp_event(certificate_with(lethe.GDP(mu), neighbours))
    assert exported.neighbours == neighbours
    for delta in DELTAS:
        by_losses = losses(exported.neighbouring_relation).compose(exported.event).get_epsilon(delta)
        assert by_losses == pytest.approx(lethe.GDP(mu).epsilon(delta), rel=1e-4)  # its grid of 1e-4, its tail of 1e-15
        by_renyi = RdpAccountant(None, exported.neighbouring_relation).compose(exported.event).get_epsilon(delta)
        assert by_losses < by_renyi <= lethe.ZCDP(mu * mu / 2).epsilon(delta) * 1.01  # its orders are a grid


@pytest.mark.parametrize("mu", [0.1, 0.3, 1 / 3, 7.0, 1e-200, 1e99])
def test_exported_noise_never_claims_less_than_mu(mu: float) -> None:
    from fractions import Fraction

    noise = to_dp_event(certificate_with(lethe.GDP(mu))).event.noise_multiplier
    assert Fraction(noise) * Fraction(mu) <= 1


@pytest.mark.parametrize(
    ("guarantee", "kind"),
    [
        (lethe.GDP(0.0), dp_event.NoOpDpEvent),
        (lethe.GDP(math.inf), dp_event.NonPrivateDpEvent),
        (NotPrivate(), dp_event.NonPrivateDpEvent),
        (lethe.ZCDP(math.inf), dp_event.NonPrivateDpEvent),
        (WithSlack(lethe.GDP(1.0), 0.0), dp_event.GaussianDpEvent),
        (Tightest((lethe.GDP(1.0), lethe.GDP(1.0))), dp_event.GaussianDpEvent),
    ],
)
def test_the_ends_of_the_range_have_their_own_events(guarantee: Any, kind: type) -> None:
    assert type(to_dp_event(certificate_with(guarantee)).event) is kind


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_zcdp_exports_to_the_renyi_accountant_and_the_other_refuses(neighbours: str) -> None:
    exported = to_dp_event(certificate_with(lethe.ZCDP(0.3), neighbours))
    assert exported.neighbouring_relation is RELATIONS[neighbours]
    accountant = RdpAccountant(None, exported.neighbouring_relation).compose(exported.event)
    assert accountant.get_epsilon(1e-5) == pytest.approx(lethe.ZCDP(0.3).epsilon(1e-5), rel=1e-3)  # its orders are a grid
    assert not losses(exported.neighbouring_relation).supports(exported.event)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_poisson_batches_export_as_the_same_mechanism(neighbours: str) -> None:
    run = run_of("poisson", neighbours, release="all", noise_multiplier=[2.0] * 20 + [3.0] * 20)
    certificate = lethe.certify(run, 1e-5)
    exported = to_dp_event(certificate)
    by_losses = losses(exported.neighbouring_relation).compose(exported.event).get_epsilon(1e-5)
    assert by_losses == pytest.approx(certificate.epsilon, rel=1e-4)
    renyi = RdpAccountant(None, exported.neighbouring_relation)
    # Replacing one record it does not take: no number is better than a wrong one.
    assert renyi.supports(exported.event) is (neighbours != "replace_one")
    if neighbours != "replace_one":
        assert renyi.compose(exported.event).get_epsilon(1e-5) > by_losses


@pytest.mark.parametrize(
    "guarantee",
    [
        MIXTURE,
        WithSlack(lethe.GDP(1.0), 1e-9),
        Tightest((lethe.GDP(1.0), lethe.ZCDP(0.1))),
        lethe.RDPCurve((2.0, 3.0), (0.1, 0.2)),
        SampledGaussian(sampling_probability=0.1, noise=(1.0,), counts=(3,), relation="zero_out", design="without_replacement"),
        SampledGaussian(sampling_probability=0.1, noise=(1.0,), counts=(3,), relation="zero_out", design="poisson", gaussian_mu=0.1),
    ],
)
def test_what_no_event_says_is_refused(guarantee: Any) -> None:
    with pytest.raises(lethe.InputError, match="needs one that a DpEvent says exactly") as caught:
        to_dp_event(certificate_with(guarantee))
    assert caught.value.source is not None
    assert caught.value.remedy is not None


def test_a_single_point_is_exported_where_dp_accounting_can_say_it() -> None:
    certificate = certificate_with(lethe.ApproxDP(1.0, 1e-6))
    if hasattr(dp_event, "EpsilonDeltaDpEvent"):
        assert type(to_dp_event(certificate).event).__name__ == "EpsilonDeltaDpEvent"
    else:
        with pytest.raises(lethe.InputError, match="no event for it"):
            to_dp_event(certificate)


def test_only_certificates_are_exported() -> None:
    bad: Any = lethe.GDP(1.0)
    with pytest.raises(lethe.InputError, match=r"needs a lethe\.Certificate"):
        to_dp_event(bad)


# Composition of guarantees, against closed forms


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 6.0])
@pytest.mark.parametrize("parts", [1, 9])
def test_convolved_gaussian_losses_are_never_below_the_exact_composition(mu: float, parts: int) -> None:
    exact = lethe.GDP(mu)
    convolved = _convolved({lethe.GDP(mu / math.sqrt(parts) * (1 + 1e-15)): parts})
    assert convolved is not None
    for delta in (1e-2, 1e-5, 1e-9):
        assert exact.epsilon(delta) <= convolved.epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)
    for epsilon in np.linspace(0.0, 6 * mu, 13):
        assert convolved.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)


def test_two_executions_with_secret_order_are_the_mixture_of_pairs() -> None:
    pairs = [(math.hypot(a, b), v * w) for a, v in zip(*_both(MIXTURE), strict=True) for b, w in zip(*_both(MIXTURE), strict=True)]
    exact = lethe.GDPMixture(tuple(mu for mu, _ in pairs), tuple(weight for _, weight in pairs))
    twice = together([(MIXTURE, 2)])
    for delta in (0.1, 1e-2, 1e-5, 1e-9):
        assert exact.epsilon(delta) <= twice.epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)


def test_a_mixture_with_a_gaussian_is_the_shifted_mixture() -> None:
    exact = lethe.GDPMixture(tuple(math.hypot(mu, 0.7) for mu in MIXTURE.mus), MIXTURE.weights)
    both = together([(MIXTURE, 1), (lethe.GDP(0.7), 1)])
    for delta in (0.1, 1e-2, 1e-5, 1e-9):
        assert exact.epsilon(delta) <= both.epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)


def test_weight_left_out_of_a_mixture_reveals_nothing() -> None:
    part = lethe.GDPMixture((2.0,), (0.1,))
    exact = lethe.GDPMixture((math.sqrt(8.0), 2.0), (0.01, 0.18))
    for delta in (1e-2, 1e-5):
        assert exact.epsilon(delta) <= together([(part, 2)]).epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)


def test_deep_deltas_are_answered_by_renyi_curves() -> None:
    twice = together([(MIXTURE, 2)])
    assert twice.epsilon(1e-40) < math.inf
    assert twice.epsilon(1e-40) >= lethe.GDP(math.sqrt(8.0)).epsilon(1e-40 / 0.01)  # of the component of weight 0.01 alone


def test_single_points_compose_as_dp_accounting_composes_them() -> None:
    theirs = privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(1.0, 1e-6)).self_compose(3)
    for delta in (0.1, 1e-3, 1e-5):
        ours = together([(lethe.ApproxDP(1.0, 1e-6), 3)]).epsilon(delta)
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)
    assert together([(lethe.ApproxDP(1.0, 1e-6), 3)]).epsilon(1e-6) == math.inf


def test_slack_is_paid_by_each_part() -> None:
    part = WithSlack(lethe.GDP(1.0), 1e-6)
    paid, exact = 1 - (1 - 1e-6) ** 2, lethe.GDP(math.sqrt(2.0))
    both = together([(part, 2)])
    for epsilon in (1.0, 3.0, 5.0):
        assert exact.delta(epsilon) * (1 - 1e-6) ** 2 + paid <= both.delta(epsilon) <= (exact.delta(epsilon) + 2e-6) * (1 + 1e-4)


def test_the_tightest_of_two_composes_no_worse_than_each_and_no_better_than_the_truth() -> None:
    # Both hold for a Gaussian mechanism at distance 1, so its own composition lies below.
    both = Tightest((lethe.GDP(1.2), lethe.ApproxDP(2.0, lethe.GDP(1.0).delta(2.0))))
    truth, looser = lethe.GDP(math.sqrt(2.0)), lethe.GDP(1.2 * math.sqrt(2.0))
    for delta in (1e-2, 1e-5):
        assert truth.epsilon(delta) <= together([(both, 2)]).epsilon(delta) <= looser.epsilon(delta) * (1 + 1e-4)


@pytest.mark.parametrize("other", [lethe.ZCDP(0.125), lethe.RDPCurve((1.5, 2.0, 4.0, 8.0, 16.0, 32.0), (0.1875, 0.25, 0.5, 1.0, 2.0, 4.0))])
def test_renyi_guarantees_add_up(other: Any) -> None:
    total = together([(lethe.GDP(0.5), 1), (other, 1)])
    for delta in DELTAS:
        assert total.epsilon(delta) >= lethe.GDP(math.sqrt(0.5)).epsilon(delta)  # the Gaussian with that very curve
        assert total.epsilon(delta) >= max(lethe.GDP(0.5).epsilon(delta), other.epsilon(delta))
    if isinstance(other, lethe.ZCDP):
        assert total.epsilon(1e-5) <= lethe.ZCDP(0.25).epsilon(1e-5) * (1 + 1e-3)  # orders are a grid


def _both(mixture: lethe.GDPMixture) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return mixture.mus, mixture.weights


def test_every_field_of_a_sampled_gaussian_is_known_where_they_are_merged_and_split() -> None:
    known = {"sampling_probability", "noise", "counts", "relation", "design", "levels_before_rounding", "gaussian_mu"}
    assert set(stored_fields(SampledGaussian)) == known


@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
def test_a_gaussian_beside_sampled_steps_is_paid_on_every_way(design: Any) -> None:
    steps = SampledGaussian(sampling_probability=0.1, noise=(1.5, 2.0), counts=(4, 3), relation="zero_out", design=design)
    beside = replace(steps, gaussian_mu=0.8)
    assert together([(steps, 1), (lethe.GDP(0.8), 1)]) == beside
    assert together([(beside, 1), (lethe.GDP(0.6), 1)]).gaussian_mu == pytest.approx(1.0, rel=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
    split, whole = _convolved({beside: 2}), together([(beside, 2)])
    assert split is not None
    for delta in (1e-3, 1e-6):
        assert split.epsilon(delta) == pytest.approx(whole.epsilon(delta), rel=1e-4)


# dp_accounting's own events


@pytest.mark.parametrize("relation", [ADD, REPLACE, ZERO])
def test_a_gaussian_costs_its_exact_epsilon_with_the_factor_two(relation: Any) -> None:
    factor = 2.0 if relation is REPLACE else 1.0
    assert spent(relation, gaussian(2.0)) == pytest.approx(lethe.GDP(factor / 2.0).epsilon(1e-5), rel=1e-9)
    assert spent(relation, gaussian(2.0)) == pytest.approx(losses(relation).compose(gaussian(2.0)).get_epsilon(1e-5), rel=1e-4)
    assert spent(relation, gaussian(2.0), gaussian(1.5)) == pytest.approx(
        lethe.GDP(factor * math.hypot(1 / 2, 1 / 1.5)).epsilon(1e-5), rel=1e-9
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE, ZERO])
def test_a_gaussian_with_poisson_batches_costs_what_the_loss_accountant_says(relation: Any) -> None:
    ours, theirs = LetheAccountant(relation), losses(relation)
    for accountant in (ours, theirs):
        accountant.compose(gaussian(2.0)).compose(poisson(0.02, 1.0), 200).compose(dp_event.SelfComposedDpEvent(poisson(0.05, 1.5), 10))
    for delta in (1e-3, 1e-6):
        assert ours.get_epsilon(delta) == pytest.approx(theirs.get_epsilon(delta), rel=3e-4)
    assert ours.get_delta(1.0) == pytest.approx(theirs.get_delta(1.0), rel=3e-4)


def test_counts_and_lists_say_the_same() -> None:
    several = [poisson(0.1, 1.5)] * 3
    listed = spent(ADD, dp_event.ComposedDpEvent(several))
    assert spent(ADD, dp_event.SelfComposedDpEvent(several[0], 3)) == listed == spent(ADD, *several)
    assert LetheAccountant().compose(several[0], 3).get_epsilon(1e-5) == listed
    nested = dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([gaussian(3.0), dp_event.SelfComposedDpEvent(gaussian(4.0), 5)]), 2)
    assert spent(ADD, nested) == pytest.approx(lethe.GDP(math.sqrt(2 / 9 + 10 / 16)).epsilon(1e-5), rel=1e-9)


def test_zcdp_events_are_relation_free_and_their_offset_counts() -> None:
    for relation in (ADD, REPLACE, ZERO):
        assert spent(relation, dp_event.ZCDpEvent(0.2), dp_event.ZCDpEvent(0.1)) == pytest.approx(lethe.ZCDP(0.3).epsilon(1e-5), rel=1e-9)
    theirs = RdpAccountant().compose(dp_event.ZCDpEvent(0.2, 0.5)).get_epsilon(1e-5)
    assert spent(ADD, dp_event.ZCDpEvent(0.2, 0.5)) == pytest.approx(theirs, rel=0.01)


def test_batches_without_replacement_cost_twice_the_distance() -> None:
    event = dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(2.0))
    by_hand = SampledGaussian(sampling_probability=0.01, noise=(2.0,), counts=(50,), relation="replace_one", design="without_replacement")
    assert LetheAccountant(REPLACE).compose(event, 50).get_epsilon(1e-5) == by_hand.epsilon(1e-5)
    assert not LetheAccountant(ADD).supports(event)


def test_noop_changes_nothing_and_non_private_everything() -> None:
    for before in ((), (gaussian(2.0),), (poisson(0.1, 1.5), gaussian(2.0))):
        assert spent(ADD, *before, dp_event.NoOpDpEvent(), gaussian(math.inf), poisson(0.0, 1.0)) == spent(ADD, *before)
        assert spent(ADD, *before, dp_event.NonPrivateDpEvent()) == math.inf
    assert spent(ADD) == 0.0
    assert LetheAccountant().get_delta(0.0) == 0.0
    assert spent(ADD, gaussian(0.0)) == spent(ADD, poisson(0.1, 0.0)) == math.inf
    assert LetheAccountant().compose(dp_event.NonPrivateDpEvent()).get_delta(3.0) == 1.0


@pytest.mark.skipif(not hasattr(dp_event, "EpsilonDeltaDpEvent"), reason="this dp_accounting has no such event")
def test_a_point_event_is_its_point() -> None:
    assert spent(ADD, dp_event.EpsilonDeltaDpEvent(1.0, 1e-6)) == 1.0


def test_composing_more_never_lowers_epsilon() -> None:
    events = [
        gaussian(3.0),
        LastIterateDpEvent(run_of("balls_in_bins", "add_or_remove"), "a"),
        poisson(0.05, 1.0),
        dp_event.NoOpDpEvent(),
        dp_event.ZCDpEvent(0.05),
        LastIterateDpEvent(run_of("full", "add_or_remove", passes=20), "b"),
        dp_event.NonPrivateDpEvent(),
    ]
    accountant, epsilons = LetheAccountant(), [0.0]
    for event in events:
        epsilons.append(accountant.compose(event).get_epsilon(1e-5))
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(epsilons))
    assert epsilons[-1] == math.inf


def test_calibration_finds_noise_for_what_is_left_of_a_budget() -> None:
    run = run_of("full", "add_or_remove", passes=20)

    def accountant() -> LetheAccountant:
        return LetheAccountant()

    def event(noise: float) -> Any:
        return dp_event.ComposedDpEvent([LastIterateDpEvent(run, "a"), gaussian(noise)])

    noise = calibrate_dp_mechanism(accountant, event, 6.0, 1e-5, mechanism_calibration.ExplicitBracketInterval(0.5, 50.0))
    assert spent(ADD, event(noise)) == pytest.approx(6.0, abs=1e-3)
    assert spent(ADD, event(noise)) <= 6.0


# Runs


@pytest.mark.parametrize("design", ["full", "cyclic", "shuffled_once", "shuffled", "balls_in_bins", "poisson", "without_replacement"])
def test_one_run_costs_its_certificate(design: str) -> None:
    run = run_of(design)
    accountant = LetheAccountant(REPLACE).compose(LastIterateDpEvent(run, "monday"))
    for delta in DELTAS:
        certificate = lethe.certify(run, delta)
        assert accountant.get_epsilon(delta) == pytest.approx(certificate.epsilon, rel=1e-9)  # ties are settled otherwise
    assert accountant.get_delta(1.0) <= lethe.certify(run, 1e-5).delta_at(1.0)


def test_two_gaussian_runs_compose_exactly() -> None:
    first, second = run_of(), run_of(noise_multiplier=6.0, passes=9)
    mus = [lethe.certify(run, 1e-5).guarantee.mu for run in (first, second)]  # pyright: ignore[reportAttributeAccessIssue]
    total = spent(REPLACE, LastIterateDpEvent(first, "a"), LastIterateDpEvent(second, "b"))
    assert total == pytest.approx(lethe.GDP(math.hypot(*mus)).epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize("design", ["shuffled_once", "shuffled"])
def test_two_runs_in_secret_order_cost_the_mixture_of_pairs(design: str) -> None:
    run = run_of(design, passes=2)
    mixture = lethe.certify(run, 1e-5).guarantee
    assert isinstance(mixture, lethe.GDPMixture)
    # Pairs of components, binned by nothing: the exact composition of the dominating pairs.
    mus = np.hypot.outer(mixture.mus, mixture.mus).ravel()
    exact = lethe.GDPMixture(tuple(mus), tuple(np.outer(mixture.weights, mixture.weights).ravel() * (1 - 1e-12)))
    total = spent(REPLACE, LastIterateDpEvent(run, "a"), LastIterateDpEvent(run, "b"))
    assert exact.epsilon(1e-5) <= total <= exact.epsilon(1e-5) * (1 + 1e-3)


def test_a_label_is_one_execution_and_two_labels_are_two() -> None:
    run = run_of()
    event, mu = LastIterateDpEvent(run, "a"), lethe.certify(run, 1e-5).guarantee.mu  # pyright: ignore[reportAttributeAccessIssue]

    def executions(count: int) -> Any:
        return pytest.approx(lethe.GDP(mu * math.sqrt(count)).epsilon(1e-5), rel=1e-9)

    assert spent(REPLACE, event, event, event) == executions(1)
    assert spent(REPLACE, event, LastIterateDpEvent(run, "b")) == executions(2)
    assert LetheAccountant(REPLACE).compose(event, 3).get_epsilon(1e-5) == executions(3)
    assert spent(REPLACE, dp_event.SelfComposedDpEvent(event, 3)) == executions(3)
    # dp_accounting defines self-composition as a list of copies, so copies in one list are executions too.
    assert spent(REPLACE, dp_event.ComposedDpEvent([event, gaussian(math.inf), event])) == executions(2)
    assert LetheAccountant(REPLACE).compose(event).compose(event, 3).compose(event).get_epsilon(1e-5) == executions(4)


def test_a_replayed_ledger_never_costs_less() -> None:
    event = LastIterateDpEvent(run_of(), "a")
    for calls in ([(event, 1), (event, 1)], [(event, 2), (event, 1)], [(event, 1), (gaussian(3.0), 1), (event, 1)]):
        accountant = LetheAccountant(REPLACE)
        for part, count in calls:
            accountant.compose(part, count)
        assert spent(REPLACE, accountant.ledger) >= accountant.get_epsilon(1e-5)


@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "poisson"])
def test_an_earlier_iterate_ends_the_credit_in_both_orders(design: str) -> None:
    run = run_of(design)
    last, earlier = LastIterateDpEvent(run, "a"), IterateDpEvent(run, 7, "a")
    everything = lethe.certify(run.replace(release="all"), 1e-5).epsilon
    for events in (
        (last, earlier),
        (earlier, last),
        (earlier,),
        (last, earlier, last, earlier),
        (dp_event.ComposedDpEvent([earlier, last]),),
    ):
        assert spent(REPLACE, *events) == everything
    assert spent(REPLACE, last) < everything or design == "poisson"
    # Of another execution it ends nothing, and every execution of a label that was composed several times over is exposed with it.
    apart = spent(REPLACE, last, IterateDpEvent(run, 7, "b"))
    assert everything < apart <= LetheAccountant(REPLACE).compose(dp_event.ComposedDpEvent([earlier, last]), 2).get_epsilon(1e-5)
    both = LetheAccountant(REPLACE).compose(last, 2).compose(earlier)
    assert both.get_epsilon(1e-5) >= spent(REPLACE, earlier, IterateDpEvent(run, 9, "b"))


def test_an_iterate_before_any_noise_makes_the_run_public() -> None:
    run = run_of(noise_at="pass_ends")
    last, earlier = LastIterateDpEvent(run, "a"), IterateDpEvent(run, 3, "a")
    assert spent(REPLACE, last) < math.inf
    assert spent(REPLACE, last, earlier) == spent(REPLACE, earlier, last) == math.inf


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_a_run_under_another_relation_is_refused(neighbours: str) -> None:
    event = LastIterateDpEvent(run_of("poisson", neighbours), "a")
    for relation in RELATIONS.values():
        assert LetheAccountant(relation).supports(event) is (relation is RELATIONS[neighbours])
    wrong = LetheAccountant(ADD if neighbours != "add_or_remove" else ZERO)
    with pytest.raises(UnsupportedEventError, match="neighbours"):
        wrong.compose(event)
    assert wrong.get_epsilon(1e-5) == 0.0


def test_a_label_names_one_run() -> None:
    accountant = LetheAccountant(REPLACE).compose(LastIterateDpEvent(run_of(), "a"))
    before = accountant.get_epsilon(1e-5)
    with pytest.raises(UnsupportedEventError, match="another run"):
        accountant.compose(LastIterateDpEvent(run_of(passes=5), "a"))
    both = dp_event.ComposedDpEvent([LastIterateDpEvent(run_of(), "new"), IterateDpEvent(run_of(passes=5), 1, "new")])
    assert not accountant.supports(both)
    assert accountant.get_epsilon(1e-5) == before


def test_stock_accountants_refuse_runs_and_names_round_trip() -> None:
    for event in (LastIterateDpEvent(run_of(), "a"), IterateDpEvent(run_of(), 3, "a")):
        assert not any(kind(neighboring_relation=REPLACE).supports(event) for kind in (PLDAccountant, RdpAccountant))
        assert dp_event.DpEvent.from_named_tuple(event.to_named_tuple()) == event


# Bad input


class _Odd(dp_event.GaussianDpEvent):
    """A Gaussian that means something else."""


@pytest.mark.parametrize(
    "event",
    [
        dp_event.UnsupportedDpEvent(),
        dp_event.DpEvent(),
        _Odd(1.0),
        dp_event.LaplaceDpEvent(1.0),
        gaussian(-1.0),
        gaussian(math.nan),
        dp_event.GaussianDpEvent("much"),  # pyright: ignore[reportArgumentType]
        poisson(1.5, 1.0),
        dp_event.PoissonSampledDpEvent(0.5, dp_event.LaplaceDpEvent(1.0)),
        dp_event.PoissonSampledDpEvent(0.5, LastIterateDpEvent(run_of("poisson", "add_or_remove"), "a")),
        dp_event.ZCDpEvent(-0.1),
        dp_event.ZCDpEvent(0.1, -0.1),
        dp_event.SelfComposedDpEvent(gaussian(1.0), 0),
        dp_event.SelfComposedDpEvent(gaussian(1.0), -3),
        dp_event.SelfComposedDpEvent(gaussian(1.0), 2.5),  # pyright: ignore[reportArgumentType]
        dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(gaussian(1.0), -3)]),
        dp_event.ComposedDpEvent("abc"),  # pyright: ignore[reportArgumentType]
        dp_event.ComposedDpEvent([gaussian(1.0), "abc"]),  # pyright: ignore[reportArgumentType]
        dp_event.SampledWithoutReplacementDpEvent(10, 11, gaussian(1.0)),
        dp_event.SampledWithoutReplacementDpEvent(0, 0, gaussian(1.0)),
    ],
    ids=repr,
)
def test_what_is_not_understood_is_unsupported_and_leaves_no_trace(event: Any) -> None:
    accountant = LetheAccountant()
    assert not accountant.supports(event)
    for composed in (event, dp_event.ComposedDpEvent([gaussian(1.0), event])):
        with pytest.raises(UnsupportedEventError):
            accountant.compose(composed)
    assert accountant.get_epsilon(1e-5) == 0.0
    assert accountant.ledger == dp_event.NoOpDpEvent()


@pytest.mark.parametrize("delta", [-0.1, 1.0, 1.5, math.nan, None, "small", True])
def test_deltas_out_of_range_are_refused(delta: Any) -> None:
    with pytest.raises(lethe.InputError):
        LetheAccountant().compose(gaussian(1.0)).get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, None, "small"])
def test_epsilons_out_of_range_are_refused(epsilon: Any) -> None:
    with pytest.raises(lethe.InputError):
        LetheAccountant().compose(gaussian(1.0)).get_delta(epsilon)


@pytest.mark.parametrize("relation", [None, "REPLACE_ONE", 2, "replace_one"])
def test_only_their_relations_are_taken(relation: Any) -> None:
    with pytest.raises(lethe.InputError, match="NeighboringRelation"):
        LetheAccountant(relation)


def test_events_check_what_they_are_given() -> None:
    run: Any = run_of()
    for label in ("", "  ", None, 3):
        with pytest.raises(lethe.InputError, match="label"):
            LastIterateDpEvent(run, label)  # pyright: ignore[reportArgumentType]
    for step in (0, -1, run.total_steps, 1.5, None, True):
        with pytest.raises(lethe.InputError, match="step"):
            IterateDpEvent(run, step, "a")  # pyright: ignore[reportArgumentType]
    for not_a_run in (None, run.to_document(), run.replace(noise_multiplier=None)):
        for make in (lambda bad: LastIterateDpEvent(bad, "a"), lambda bad: IterateDpEvent(bad, 1, "a")):
            with pytest.raises(lethe.InputError):
                make(not_a_run)


def test_the_page_s_example_runs_and_prints_what_it_says() -> None:
    page = PAGE.read_text()
    examples = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names: dict[str, Any] = {}
    for line in [line for example in examples for line in _statements(example)]:
        code, _, said = line.partition("  # ")
        if said and said.replace(".", "").isdigit():
            assert f"{eval(code, names):.4g}" == said, code
        else:
            exec(line, names)


def _statements(example: str) -> list[str]:
    import ast

    lines = example.splitlines()
    return ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(example).body]

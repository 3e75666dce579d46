"""dp_accounting's events in Lethe's accountant: what each costs, what is refused, and certificates exported to events."""

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dp_accounting import UnsupportedEventError, calibrate_dp_mechanism, dp_event, mechanism_calibration
from dp_accounting.rdp import RdpAccountant
from interop_cases import ADD, DELTAS, MIXTURE, RELATIONS, REPLACE, ZERO, gaussian, losses, poisson, run_of, spent

import lethe
from lethe.accounting.dp_events import guarantee_of
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.guarantees import NotPrivate, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event


@pytest.mark.parametrize("relation", [ADD, REPLACE, ZERO])
def test_a_gaussian_costs_its_exact_epsilon_with_the_factor_two(relation: Any) -> None:
    factor = 2.0 if relation is REPLACE else 1.0
    assert spent(relation, gaussian(2.0)) == pytest.approx(lethe.guarantees.GDP(factor / 2.0).epsilon(1e-5), rel=1e-9)
    assert spent(relation, gaussian(2.0)) == pytest.approx(losses(relation).compose(gaussian(2.0)).get_epsilon(1e-5), rel=1e-4)
    assert spent(relation, gaussian(2.0), gaussian(1.5)) == pytest.approx(
        lethe.guarantees.GDP(factor * math.hypot(1 / 2, 1 / 1.5)).epsilon(1e-5), rel=1e-9
    )


@pytest.mark.sampled(3)
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
    assert LetheAccountant(ADD).compose(several[0], 3).get_epsilon(1e-5) == listed
    nested = dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([gaussian(3.0), dp_event.SelfComposedDpEvent(gaussian(4.0), 5)]), 2)
    assert spent(ADD, nested) == pytest.approx(lethe.guarantees.GDP(math.sqrt(2 / 9 + 10 / 16)).epsilon(1e-5), rel=1e-9)


MOST = 10**15


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "event",
    [gaussian(1e6), poisson(1e-9, 5.0), dp_event.ZCDpEvent(1e-18), dp_event.ZCDpEvent(1e-18, 1e-18)]
    + [LastIterateDpEvent(run_of(design, "add_or_remove"), "a") for design in ("full", "poisson")],
    ids=repr,
)
def test_counts_are_taken_up_to_a_thousand_million_million(event: Any) -> None:
    times, listed = dp_event.SelfComposedDpEvent, dp_event.ComposedDpEvent
    most = times(event, MOST)
    for many in (times(event, MOST + 1), times(event, 10**400), times(listed([most]), 2), listed([most, event])):
        for refused in (many, listed([many])):
            assert not LetheAccountant(ADD).supports(refused)
            with pytest.raises(UnsupportedEventError, match="at most"):
                LetheAccountant(ADD).compose(refused)
    with pytest.raises(UnsupportedEventError, match="at most"):
        LetheAccountant(ADD).compose(event, 10**400)
    full = LetheAccountant(ADD).compose(event, MOST)
    epsilon = full.get_epsilon(1e-5)
    assert 0.0 < epsilon < math.inf
    with pytest.raises(UnsupportedEventError, match="ledger"):
        full.compose(event, 2)
    assert full.get_epsilon(1e-5) == epsilon <= full.compose(gaussian(1e3)).get_epsilon(1e-5)


def test_zcdp_events_are_relation_free_and_their_offset_counts() -> None:
    for relation in (ADD, REPLACE, ZERO):
        assert spent(relation, dp_event.ZCDpEvent(0.2), dp_event.ZCDpEvent(0.1)) == pytest.approx(
            lethe.guarantees.ZCDP(0.3).epsilon(1e-5), rel=1e-9
        )
    curve = guarantee_of(dp_event.ZCDpEvent(0.2, 0.5), "zero_out")
    assert isinstance(curve, lethe.guarantees.RDPCurve)
    exact = 0.5 + 0.2 * np.array(curve.orders)  # as the event documents it
    assert np.all((exact <= curve.values) & (curve.values <= exact * (1 + 1e-14)))
    assert spent(ADD, dp_event.ZCDpEvent(0.2, 0.5)) == curve.epsilon(1e-5)


def test_batches_without_replacement_cost_twice_the_distance() -> None:
    event = dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(2.0))
    by_hand = SampledGaussian(sampling_probability=0.01, noise=(2.0,), counts=(50,), relation="replace_one", design="without_replacement")
    assert LetheAccountant(REPLACE).compose(event, 50).get_epsilon(1e-5) == by_hand.epsilon(1e-5)
    assert not LetheAccountant(ADD).supports(event)
    other = dp_event.SampledWithoutReplacementDpEvent(np.int64(1000), np.int64(10), gaussian(2.0))  # pyright: ignore[reportArgumentType]
    assert LetheAccountant(REPLACE).compose(other, 50).get_epsilon(1e-5) == by_hand.epsilon(1e-5)


def test_noop_changes_nothing_and_non_private_everything() -> None:
    for before in ((), (gaussian(2.0),), (poisson(0.1, 1.5), gaussian(2.0))):
        assert spent(ADD, *before, dp_event.NoOpDpEvent(), gaussian(math.inf), poisson(0.0, 1.0)) == spent(ADD, *before)
        assert spent(ADD, *before, dp_event.NonPrivateDpEvent()) == math.inf
    assert spent(ADD) == 0.0
    assert LetheAccountant(ADD).get_delta(0.0) == 0.0
    assert spent(ADD, gaussian(0.0)) == spent(ADD, poisson(0.1, 0.0)) == math.inf
    assert LetheAccountant(ADD).compose(dp_event.NonPrivateDpEvent()).get_delta(3.0) == 1.0


def test_composing_more_never_lowers_epsilon() -> None:
    events = [
        gaussian(3.0),
        LastIterateDpEvent(run_of("poisson", "add_or_remove"), "a"),
        poisson(0.05, 1.0),
        dp_event.NoOpDpEvent(),
        dp_event.ZCDpEvent(0.05),
        LastIterateDpEvent(run_of("full", "add_or_remove", passes=20), "b"),
        dp_event.NonPrivateDpEvent(),
    ]
    accountant, epsilons = LetheAccountant(ADD), [0.0]
    for event in events:
        epsilons.append(accountant.compose(event).get_epsilon(1e-5))
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(epsilons))
    assert epsilons[-1] == math.inf


def test_calibration_finds_noise_for_what_is_left_of_a_budget() -> None:
    run = run_of("full", "add_or_remove", passes=20)

    def event(noise: float) -> Any:
        return dp_event.ComposedDpEvent([LastIterateDpEvent(run, "a"), gaussian(noise)])

    within = mechanism_calibration.ExplicitBracketInterval(0.5, 50.0)
    noise = calibrate_dp_mechanism(partial(LetheAccountant, ADD), event, 6.0, 1e-5, within)
    assert spent(ADD, event(noise)) == pytest.approx(6.0, abs=1e-3)
    assert spent(ADD, event(noise)) <= 6.0


def certificate_with(guarantee: Any, neighbours: str = "zero_out") -> lethe.Certificate:
    run = run_of("full", neighbours)
    return lethe.Certificate(
        run=run, delta=0.1, epsilon=1.0, theorem="a test", guarantee=guarantee, lipschitz=None, findings=(), others=(), citations=()
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("mu", [0.2, 0.5, 3.0])
def test_gdp_exports_exactly_for_both_accountants(neighbours: str, mu: float) -> None:
    exported = to_dp_event(certificate_with(lethe.guarantees.GDP(mu), neighbours))
    assert exported.neighbours == neighbours
    for delta in DELTAS:
        by_losses = losses(exported.neighbouring_relation).compose(exported.event).get_epsilon(delta)
        assert by_losses == pytest.approx(lethe.guarantees.GDP(mu).epsilon(delta), rel=1e-4)  # its grid of 1e-4, its tail of 1e-15
        by_renyi = RdpAccountant(None, exported.neighbouring_relation).compose(exported.event).get_epsilon(delta)
        assert by_losses < by_renyi <= lethe.guarantees.ZCDP(mu * mu / 2).epsilon(delta) * 1.01  # its orders are a grid


@pytest.mark.parametrize("mu", [0.1, 0.3, 1 / 3, 7.0, 1e-200, 1e99])
def test_exported_noise_never_claims_less_than_mu(mu: float) -> None:
    noise = to_dp_event(certificate_with(lethe.guarantees.GDP(mu))).event.noise_multiplier
    assert Fraction(noise) * Fraction(mu) <= 1


@pytest.mark.parametrize(
    ("guarantee", "kind"),
    [
        (lethe.guarantees.GDP(0.0), dp_event.NoOpDpEvent),
        (lethe.guarantees.GDP(math.inf), dp_event.NonPrivateDpEvent),
        (NotPrivate(), dp_event.NonPrivateDpEvent),
        (lethe.guarantees.ZCDP(math.inf), dp_event.NonPrivateDpEvent),
        (WithSlack(lethe.guarantees.GDP(1.0), 0.0), dp_event.GaussianDpEvent),
        (Tightest((lethe.guarantees.GDP(1.0), lethe.guarantees.GDP(1.0))), dp_event.GaussianDpEvent),
    ],
)
def test_the_ends_of_the_range_have_their_own_events(guarantee: Any, kind: type) -> None:
    assert type(to_dp_event(certificate_with(guarantee)).event) is kind


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_zcdp_exports_to_the_renyi_accountant_and_the_other_refuses(neighbours: str) -> None:
    exported = to_dp_event(certificate_with(lethe.guarantees.ZCDP(0.3), neighbours))
    assert exported.neighbouring_relation is RELATIONS[neighbours]
    accountant = RdpAccountant(None, exported.neighbouring_relation).compose(exported.event)
    assert accountant.get_epsilon(1e-5) == pytest.approx(lethe.guarantees.ZCDP(0.3).epsilon(1e-5), rel=1e-3)  # its orders are a grid
    assert not losses(exported.neighbouring_relation).supports(exported.event)


@pytest.mark.sampled(3)
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
        WithSlack(lethe.guarantees.GDP(1.0), 1e-9),
        Tightest((lethe.guarantees.GDP(1.0), lethe.guarantees.ZCDP(0.1))),
        lethe.guarantees.RDPCurve((2.0, 3.0), (0.1, 0.2)),
        lethe.guarantees.ApproxDP(1.0, 1e-6),
        BallsInBinsGaussian(mus=(1.0,), counts=(10,), relation="zero_out"),
        SampledGaussian(sampling_probability=0.1, noise=(1.0,), counts=(3,), relation="zero_out", design="without_replacement"),
        SampledGaussian(sampling_probability=0.1, noise=(1.0,), counts=(3,), relation="zero_out", design="poisson", gaussian_mu=0.1),
    ],
)
def test_what_no_event_says_is_refused(guarantee: Any) -> None:
    with pytest.raises(lethe.InputError, match="needs one that a DpEvent says exactly") as caught:
        to_dp_event(certificate_with(guarantee))
    assert caught.value.source is not None
    assert caught.value.remedy is not None


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
    accountant = LetheAccountant(ADD)
    assert not accountant.supports(event)
    for composed in (event, dp_event.ComposedDpEvent([gaussian(1.0), event])):
        with pytest.raises(UnsupportedEventError):
            accountant.compose(composed)
    assert accountant.get_epsilon(1e-5) == 0.0
    assert accountant.ledger == dp_event.NoOpDpEvent()


SPENT = LetheAccountant(ADD).compose(gaussian(1.0))
REFUSED: list[tuple[Any, str]] = [
    *((lambda bad=bad: SPENT.get_epsilon(bad), "delta") for bad in (-0.1, 1.0, 1.5, math.nan, None, "small", True)),
    *((lambda bad=bad: SPENT.get_delta(bad), "epsilon") for bad in (-0.1, math.nan, None, "small")),
    *((lambda bad=bad: LetheAccountant(bad), "NeighboringRelation") for bad in (None, "REPLACE_ONE", 2, "replace_one")),
    (lambda: to_dp_event(lethe.guarantees.GDP(1.0)), r"needs a lethe\.Certificate"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_arguments_are_refused(call: Any, words: str) -> None:
    with pytest.raises(lethe.InputError, match=words):
        call()

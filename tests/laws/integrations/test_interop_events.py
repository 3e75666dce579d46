"""dp_accounting's own events in Lethe's accountant: what each costs, and what is refused without a trace."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dp_accounting import UnsupportedEventError, calibrate_dp_mechanism, dp_event, mechanism_calibration
from interop_cases import ADD, REPLACE, ZERO, gaussian, losses, poisson, run_of, spent

import lethe
from lethe.accounting.dp_events import guarantee_of
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "event", [gaussian(1e6), poisson(1e-9, 5.0), dp_event.ZCDpEvent(1e-18), dp_event.ZCDpEvent(1e-18, 1e-18)], ids=repr
)
def test_counts_are_taken_up_to_a_thousand_million_million(event: Any) -> None:
    most = 10**15
    for count in (most + 1, 10**30, 10**400):
        for many in (
            dp_event.SelfComposedDpEvent(event, count),
            dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(event, count)]),
            dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(event, most)]), 2),
            dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(event, most), event]),
        ):
            assert not LetheAccountant(ADD).supports(many)
            with pytest.raises(UnsupportedEventError, match="at most"):
                LetheAccountant(ADD).compose(many)
        with pytest.raises(UnsupportedEventError, match="at most"):
            LetheAccountant(ADD).compose(event, count)
    full = LetheAccountant(ADD).compose(event, most)
    epsilon = full.get_epsilon(1e-5)
    assert 0.0 < epsilon < math.inf
    with pytest.raises(UnsupportedEventError, match="ledger"):
        full.compose(event)
    assert full.get_epsilon(1e-5) == epsilon
    assert full.compose(gaussian(1e3)).get_epsilon(1e-5) >= epsilon


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


@pytest.mark.parametrize("design", ["poisson", pytest.param("balls_in_bins", marks=pytest.mark.nightly)])
def test_composing_more_never_lowers_epsilon(design: str) -> None:
    events = [
        gaussian(3.0),
        LastIterateDpEvent(run_of(design, "add_or_remove"), "a"),
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

    def accountant() -> LetheAccountant:
        return LetheAccountant(ADD)

    def event(noise: float) -> Any:
        return dp_event.ComposedDpEvent([LastIterateDpEvent(run, "a"), gaussian(noise)])

    noise = calibrate_dp_mechanism(accountant, event, 6.0, 1e-5, mechanism_calibration.ExplicitBracketInterval(0.5, 50.0))
    assert spent(ADD, event(noise)) == pytest.approx(6.0, abs=1e-3)
    assert spent(ADD, event(noise)) <= 6.0

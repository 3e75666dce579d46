"""Certificates exported to dp_accounting: exactly, or not at all."""

import math
from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from interop_cases import DELTAS, MIXTURE, RELATIONS, losses, run_of

import lethe
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.guarantees import NotPrivate, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.integrations.dp_accounting import to_dp_event


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
    from fractions import Fraction

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

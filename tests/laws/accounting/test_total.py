"""Totals against compositions that are known exactly, of records or of users, and what they refuse to add."""

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import MNIST_SIZED, make_run
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

import lethe
from lethe.accounting.totals import Total
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.upward_formatting import shown
from lethe.certificates.statement import Statement
from lethe.documents.strict import read_document, write_document

DELTA = 1e-6
RUN = MNIST_SIZED
CERTIFICATE = lethe.certify(RUN, delta=DELTA)
OTHER = lethe.certify(RUN.replace(passes=10), delta=DELTA)


def added(*parts: object, **options: Any) -> Total:
    return lethe.total(list(parts), **{"delta": DELTA, "neighbours": "replace_one", **options})


def test_gaussians_add_their_squares() -> None:
    mus = (0.2, 0.7, 1.1)
    exact = lethe.guarantees.GDP(math.sqrt(sum(mu * mu for mu in mus)))
    found = added(*map(lethe.guarantees.GDP, mus))
    assert exact.epsilon(DELTA) <= found.epsilon <= exact.epsilon(DELTA) * (1 + 1e-12)
    assert added((lethe.guarantees.GDP(0.3), 9)).epsilon == pytest.approx(lethe.guarantees.GDP(0.9).epsilon(DELTA), rel=1e-12)
    mu, other = (one.guarantee.mu for one in (CERTIFICATE, OTHER))  # pyright: ignore[reportAttributeAccessIssue]
    exact = lethe.guarantees.GDP(math.hypot(mu, other)).epsilon(DELTA)
    assert added(CERTIFICATE, OTHER).epsilon == pytest.approx(exact, rel=1e-12)
    assert added((CERTIFICATE, 2)).epsilon == pytest.approx(lethe.guarantees.GDP(mu * math.sqrt(2)).epsilon(DELTA), rel=1e-12)
    assert added(CERTIFICATE).epsilon == CERTIFICATE.epsilon  # of one part the part's
    assert added(CERTIFICATE).epsilon_at(1e-7) == CERTIFICATE.epsilon_at(1e-7)


def _points(parts: list[tuple[float, float]], epsilon: float) -> float:
    """The smallest delta of all mechanisms with these (epsilon, delta): the randomised responses of Kairouz, Oh and Viswanath, enumerated.

    Each reveals everything with probability delta, and else answers right with probability 1 / (1 + exp(-epsilon)).
    """
    kept = math.prod(1.0 - delta for _, delta in parts)
    found = 0.0
    for signs in itertools.product((1, -1), repeat=len(parts)):
        loss = sum(sign * level for sign, (level, _) in zip(signs, parts, strict=True))
        chance = math.prod(1.0 / (1.0 + math.exp(-sign * level)) for sign, (level, _) in zip(signs, parts, strict=True))
        found += chance * max(0.0, -math.expm1(epsilon - loss))
    return 1.0 - kept + kept * found


@pytest.mark.parametrize(
    "parts",
    [
        [(0.5, 0.0), (0.3, 0.0)],
        [(0.1, 1e-8), (0.7, 1e-7), (1.3, 0.0)],
        [(0.2, 1e-9)] * 6,
        [(0.01, 0.0), (2.0, 1e-10), (0.31, 1e-7), (0.05, 0.0)],
    ],
)
def test_points_add_to_the_optimum(parts: list[tuple[float, float]]) -> None:
    found = added(*(lethe.guarantees.ApproxDP(*part) for part in parts))
    for delta in (1e-6, 1e-4, 1e-2):
        assert _points(parts, found.epsilon_at(delta)) <= delta * (1 + 1e-9)  # never below the exact optimum
        assert _points(parts, found.epsilon_at(delta) * 0.995 - 1e-3) > delta  # and little above it
    for epsilon in (0.1, 0.4, 1.1):
        exact = _points(parts, epsilon)
        assert exact <= found.delta_at(epsilon) * (1 + 1e-9)
        assert found.delta_at(epsilon) <= exact * 1.01 + 3e-4  # losses are rounded up to a grid of at most 1e-4 each


def test_profiles_that_are_only_known_point_by_point_add_tightly() -> None:
    """A perturbed minimiser with one vertex and no determinant is a Gaussian mechanism, of which the composition does not know that."""
    for mu, count in ((0.3, 3), (1.0, 2)):
        found = added((PerturbedMinimiser(((0.0, ((mu, 1),)),)), count))
        for delta in (1e-3, 1e-6):
            exact = lethe.guarantees.GDP(mu * math.sqrt(count)).epsilon(delta)
            assert exact <= found.epsilon_at(delta) <= exact * (1 + 1e-4)


def test_pure_parts_add_up_and_no_grid_adds_to_them() -> None:
    found = added(lethe.guarantees.ApproxDP(0.5, 0.0), (lethe.guarantees.ApproxDP(0.3, 1e-9), 2))
    assert 1.1 <= found.epsilon <= 1.1 * (1 + 1e-12)
    assert found.guarantee.epsilon(1e-9) == math.inf
    assert found.guarantee.epsilon(2.1e-9) <= 1.1 * (1 + 1e-12)
    assert added(lethe.guarantees.ApproxDP(0.5, 0.0), lethe.guarantees.ApproxDP(0.3, 0.0)).guarantee.epsilon(0.0) <= 0.8 * (1 + 1e-12)


def _exact_mixed(mu: float, epsilon_part: float, level: float) -> float:
    """Of a Gaussian mechanism and pure randomised response together: the mean over its two answers."""
    chance = 1.0 / (1.0 + math.exp(-epsilon_part))

    def missed(s: float) -> float:
        return math.exp(log_ndtr(mu / 2 - s / mu)) - math.exp(s + log_ndtr(-mu / 2 - s / mu))

    return chance * missed(level - epsilon_part) + (1.0 - chance) * missed(level + epsilon_part)


@pytest.mark.parametrize(("mu", "pure"), [(0.3, 0.2), (1.0, 0.5), (0.1, 1.5)])
def test_a_gaussian_and_a_pure_part_add_to_their_exact_convolution(mu: float, pure: float) -> None:
    found = added(lethe.guarantees.GDP(mu), lethe.guarantees.ApproxDP(pure, 0.0))
    for delta in (1e-2, 1e-4, 1e-6, 1e-8):
        epsilon = found.epsilon_at(delta)
        assert _exact_mixed(mu, pure, epsilon) <= delta * (1 + 1e-9)
        assert _exact_mixed(mu, pure, epsilon * 0.999) > delta


def test_sampled_gaussians_and_events_add_as_dp_accounting_adds_them() -> None:
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    sampled = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 200)
    events = (sampled, dp.GaussianDpEvent(4.0), dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.GaussianDpEvent(3.0)]))
    theirs = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in events:
        theirs.compose(event)
    found = added(*events, neighbours="add_or_remove")
    # Theirs rounds losses up to a grid of 1e-4 a step too: two upper bounds of one number.
    assert found.epsilon == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-2)
    assert found.epsilon > lethe.guarantees.GDP(math.sqrt(1 / 16 + 2 / 9)).epsilon(DELTA)
    assert not any(part.computed for part in found.parts)


def test_renyi_curves_add_order_by_order() -> None:
    curve = lethe.guarantees.RDPCurve((2.0, 8.0, 32.0), (0.01, 0.05, 0.3))
    by_curves = lethe.guarantees.RDPCurve((2.0, 8.0, 32.0), (0.03, 0.15, 0.9)).epsilon(DELTA)
    assert added((curve, 3)).epsilon <= by_curves * (1 + 1e-9)
    orders = tuple(np.geomspace(1.05, 300.0, 60).tolist())
    renyi = lethe.guarantees.RDPCurve(orders, tuple(order * 0.045 for order in orders))
    exact = lethe.guarantees.GDP(0.5).epsilon(DELTA)  # a Gaussian mechanism of 0.3 has that curve, which forgets some of its profile
    assert exact <= added(renyi, lethe.guarantees.GDP(0.4)).epsilon <= exact * 1.15


def _kinds() -> st.SearchStrategy[Guarantee]:
    size = st.floats(0.01, 2.0)
    return st.one_of(
        size.map(lethe.guarantees.GDP),
        size.map(lambda value: lethe.guarantees.ZCDP(value * value / 2)),
        size.map(lambda value: lethe.guarantees.ApproxDP(value, DELTA / 10)),
        size.map(lambda value: lethe.guarantees.GDPMixture((value, value / 2), (0.5, 0.5))),
    )


@settings(max_examples=6 if by_night() else 3, deadline=None)
@given(parts=st.lists(_kinds(), min_size=1, max_size=3), more=_kinds())
def test_laws_of_a_total(parts: list[Guarantee], more: Guarantee) -> None:
    found = added(*parts)
    if len(parts) == 1:
        assert found.epsilon == parts[0].epsilon(DELTA)
    assert added(*reversed(parts)).epsilon == found.epsilon  # bit for bit: parts are put in one order
    # The grid of a convolution depends on its parts; a coarser one rounds up by more.
    assert added(*parts, more).epsilon >= found.epsilon * (1 - 1e-4)
    assert added(*parts).epsilon >= max(part.epsilon(DELTA) for part in parts) * (1 - 1e-4)


def test_a_total_is_a_part_of_a_later_one_as_if_its_parts_had_been_given(tmp_path: Path) -> None:
    parts = [CERTIFICATE, lethe.guarantees.GDP(0.5), lethe.guarantees.ApproxDP(0.1, 0.0), lethe.guarantees.ZCDP(0.02)]
    first = added(*parts[:3])
    first.save(tmp_path / "first.json")
    assert Total.load(tmp_path / "first.json") == first
    flat, nested, saved = added(*parts), added(first, parts[3]), added(str(tmp_path / "first.json"), parts[3])
    assert flat.epsilon == nested.epsilon == saved.epsilon
    assert len(nested.parts) == 4
    twice = added((first, 2))
    assert [part.count for part in twice.parts] == [2, 2, 2]
    assert twice.epsilon > first.epsilon
    back = added(*parts[:3], delta=None, epsilon=first.epsilon)
    assert back.delta == pytest.approx(DELTA, rel=1e-6)
    assert back.delta <= DELTA * (1 + 1e-9)
    assert back.asked == "epsilon"
    meant = added(CERTIFICATE, delta=1e-4, allow_large_delta=True)
    assert meant.to_dict()["large_delta"] is meant.large_delta is True
    for found in (back, meant):
        assert Total.from_dict(found.to_dict()) == found


def test_what_is_not_fixed_or_not_proved_is_said() -> None:
    found = added(CERTIFICATE, (lethe.guarantees.GDP(0.1), 2))
    assert "fixed before anything was released" in found.explain()
    assert "0.1-GDP: guarantee: taken as it is written" in found.explain()
    assert found.written == ("0.1-GDP",)
    assert repr(found) == f"Total(({shown(found.epsilon)}, 1e-06)-DP, replace one, 2 parts)"


def test_what_does_not_add_up_is_refused_by_name(tmp_path: Path) -> None:
    CERTIFICATE.save(tmp_path / "a.json")
    lethe.certify(RUN, delta=1e-7).save(tmp_path / "b.json")  # the same release at another delta
    write_document(tmp_path / "bare.json", lethe.guarantees.GDP(0.1).to_dict())
    zero = lethe.certify(RUN.replace(neighbours="zero_out", passes=3), delta=DELTA)
    user, record, number = _certificate("user"), _certificate("record"), lethe.guarantees.GDP(0.5)
    step = SampledGaussian(sampling_probability=0.1, noise=(2.0,), counts=(1,), relation="zero_out", design="poisson")
    assert added(step, neighbours="zero_out").epsilon == step.epsilon(DELTA)
    copy = "a copy of a release costs nothing, and a second release like it costs again"
    refused: list[tuple[list[Any], dict[str, Any], str]] = [
        ([CERTIFICATE, CERTIFICATE], {}, copy),
        ([tmp_path / "a.json", CERTIFICATE], {}, copy),
        ([tmp_path / "a.json", tmp_path / "b.json"], {}, copy),
        ([CERTIFICATE, added(CERTIFICATE, OTHER)], {}, "is there twice"),
        ([tmp_path / "bare.json", tmp_path / "bare.json"], {}, r"bare\.json is there twice"),
        ([CERTIFICATE, zero], {"neighbours": None}, rf"run {RUN.run_id}: replace_one; run {zero.run.run_id}: zero_out"),
        ([CERTIFICATE], {"neighbours": "zero_out"}, "what was asked for: zero_out"),
        ([number, step], {"neighbours": "add_or_remove"}, "is about zero_out, and is said to be about add_or_remove"),
        ([CERTIFICATE], {"delta": 1e-4}, "records"),
        ([user, record], {}, "different units of privacy"),
        ([user], {"unit": "record"}, "different units of privacy"),
        ([record], {"unit": "user"}, "different units of privacy"),
        ([user, number], {}, "(?s)different units.*unit='user'"),  # numbers are about records unless it is said
    ]
    for parts, options, said in refused:
        with pytest.raises(lethe.InputError, match=said):
            added(*parts, **options)


def test_what_was_altered_is_refused_by_name(tmp_path: Path) -> None:
    content = CERTIFICATE.to_dict()
    typed = {"guarantee": {"kind": "gdp", "mu": 0.01}, "epsilon": lethe.guarantees.GDP(0.01).epsilon(DELTA)}
    write_document(tmp_path / "typed.json", {**content, **typed})
    with pytest.raises(lethe.InputError, match=r"typed\.json: this certificate does not follow from its run"):
        added(tmp_path / "typed.json")
    total, of_user = added(CERTIFICATE, lethe.guarantees.GDP(0.5)).to_dict(), added(_certificate("user")).to_dict()
    smaller = {**total["parts"][1], "document": {"kind": "gdp", "mu": 0.1}}
    altered = [
        ({**total, "epsilon": 0.1}, r"does not follow from its parts: it claims epsilon = 0\.1"),
        ({**total, "parts": [total["parts"][0], smaller]}, "does not follow from its parts"),
        ({**total, "parts": [], "epsilon": 0.0}, "it has no parts"),
        *(({key: value for key, value in total.items() if key != name}, "total") for name in total),
        *(({**of_user, "unit": wrong}, "unit") for wrong in ("record", "household", None, 1)),
        ({key: value for key, value in of_user.items() if key != "unit"}, "unit"),
    ]
    for wrong, said in altered:
        with pytest.raises(lethe.InputError, match=said):
            Total.from_dict(wrong)


def test_a_seeded_part_leaves_nothing() -> None:
    seeded = lethe.certify(RUN.replace(seeded=True), delta=DELTA)
    found = added(seeded, lethe.guarantees.GDP(0.1))
    assert found.epsilon == math.inf
    assert "NOT PRIVATE" in found.explain()
    assert Total.from_dict(found.to_dict()) == found


def test_statements_are_verified_and_written_numbers_are_told(tmp_path: Path) -> None:
    stated = Statement(name="a sum", guarantee=lethe.guarantees.GDP(0.2), neighbours="replace_one", findings=(), citations=())
    stated.save(tmp_path / "sum.json")
    found = added(tmp_path / "sum.json", CERTIFICATE)
    assert found.written == (str(tmp_path / "sum.json"),)
    assert any("guarantee: of a sum, taken as it is written" in line for line in found.declared)
    answers = lethe.verify(tmp_path / "sum.json", max_epsilon=0.1)
    assert not answers.follows.yes
    assert "taken as it is written" in answers.follows.why
    assert not answers.private.yes  # of how many records it is, nobody says
    assert lethe.verify(tmp_path / "sum.json", allow_large_delta=True).private.yes
    assert answers.within is not None
    assert not answers.within.yes
    total = lethe.verify(found)
    assert not total.follows.yes
    assert not total.sealed.yes
    assert read_document(tmp_path / "sum.json")["derivation"] is None


def test_the_counts_of_events_are_exact() -> None:
    dp = pytest.importorskip("dp_accounting")
    for count in (10**16, 10**400):
        with pytest.raises(lethe.InputError, match="counts need to be whole numbers from 1 to 1e15"):
            added(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), count))
    rare = added(dp.SampledWithoutReplacementDpEvent(10**330, 1, dp.GaussianDpEvent(1.0))).guarantee
    assert rare.delta(0.0) > 0.0
    assert rare.epsilon(0.0) == math.inf
    third = added(dp.SampledWithoutReplacementDpEvent(3, 1, dp.GaussianDpEvent(1.0))).guarantee
    assert isinstance(third, SampledGaussian)
    assert Fraction(third.sampling_probability) >= Fraction(1, 3)


def _certificate(unit: str, **changes: Any) -> lethe.Certificate:
    facts: dict[str, Any] = {"noise_multiplier": 9.0, "loss": {"kind": "unknown"}, "clip_norm": 1.0, "release": "all"}
    run = make_run(**{"records": 50_000, "batches": lethe.batches.Full(), "steps": 5, "step_size": 0.1, "unit": unit, **facts, **changes})
    return lethe.certify(run, DELTA)


def test_certificates_of_users_add_up_as_those_of_records_do(tmp_path: Path) -> None:
    of_users = added(_certificate("user"), _certificate("user", steps=7))
    of_records = added(_certificate("record"), _certificate("record", steps=7))
    assert of_users.epsilon == of_records.epsilon
    assert (of_users.unit, of_records.unit) == ("user", "record")
    assert "replace one user, 2 releases together" in of_users.title
    assert "one person is one user" in of_users.declared[0]
    assert "unit" not in of_records.to_dict()
    _certificate("user").save(tmp_path / "one.json")
    total = added(str(tmp_path / "one.json"), lethe.guarantees.GDP(0.5), unit="user")
    assert any("replace_one of users, as the caller says" in line for line in total.declared)
    total.save(tmp_path / "total.json")
    again = Total.load(tmp_path / "total.json")
    assert (again.unit, again.epsilon) == ("user", total.epsilon)
    assert added(str(tmp_path / "total.json"), _certificate("user", steps=3), unit="user").unit == "user"
    with pytest.raises(lethe.InputError, match="different units"):
        added(str(tmp_path / "total.json"), _certificate("record", steps=3))


def test_an_accountant_of_events_takes_no_users() -> None:
    accounting = pytest.importorskip("dp_accounting.privacy_accountant")
    from lethe.integrations import dp_accounting as integration

    accountant = integration.LetheAccountant(accounting.NeighboringRelation.REPLACE_ONE)
    run = _certificate("user").run
    with pytest.raises(accounting.UnsupportedEventError, match="about users"):
        accountant.compose(integration.LastIterateDpEvent(run, "monday"))
    assert "the unit is one user" in integration.to_dp_event(_certificate("user")).note

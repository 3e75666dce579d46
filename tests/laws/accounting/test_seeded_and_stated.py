"""Seeded runs, of which nothing is proved anywhere; statements of files, of which what nothing shows is told."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from helpers import DESIGNS, batches, make_run, with_fresh_noise

import lethe
from lethe.accounting.certify import cumulative_privacy, evaluate_theorems
from lethe.accounting.heavy_tailed import phases_guarantee
from lethe.accounting.recheck import recheck, recheck_statement
from lethe.calculus.guarantees import NotPrivate
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.upward_formatting import shown
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import FRESH_NOISE, holds
from lethe.certificates.statement import Statement
from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.heavy_tailed.solution import gaussian_release
from lethe.mechanisms.adassp import moments_sensitivity
from lethe.mechanisms.base import gaussian_guarantee
from lethe.mechanisms.minimisers.output_perturbation import output_sensitivity
from lethe.mechanisms.moments import moment_sensitivity
from lethe.mechanisms.repetitions import PoissonRepetitions
from lethe.mechanisms.selection import selection_guarantee
from lethe.run.run import Neighbours
from lethe.theorems.registry import ALL

DELTA = 1e-5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("release", ["last", "all"])
def test_nothing_is_certified_of_a_seeded_run(design: str, release: str) -> None:
    run = make_run(batches=batches(design, 10), release=release, seeded=True)
    certificate, fresh = lethe.certify(run, DELTA), lethe.certify(with_fresh_noise(run), DELTA)
    assert certificate.epsilon == math.inf > fresh.epsilon
    assert certificate.guarantee == NotPrivate()
    assert certificate.theorem == fresh.theorem
    (failing,) = [finding for finding in certificate.findings if finding.status == "fails"]
    assert failing.name == FRESH_NOISE
    assert failing.detail.endswith(f"with fresh noise: epsilon = {shown(fresh.epsilon)} by {fresh.theorem}")
    (line,) = [line for line in certificate.explain().splitlines() if line.startswith("NOT PRIVATE")]
    assert "seed" in line
    assert failing.detail in line
    again = lethe.Certificate.from_dict(json.loads(to_json(certificate.to_dict())))
    assert again.explain() == certificate.explain()
    recheck(again)
    if release == "last":  # no theorem says anything finite, nor does a comparison or a sweep
        for verdict in evaluate_theorems(run, ALL):
            if verdict.bound is not None:
                assert verdict.bound.guarantee == verdict.theorem.bound(run).guarantee == NotPrivate()
                assert verdict.with_fresh_noise == verdict.theorem.bound(with_fresh_noise(run))
        comparison = lethe.compare(run, DELTA)
        assert all(row.epsilon in (None, math.inf) and not row.proves for row in comparison.rows)
        assert "from a seed" in comparison.explain()
        assert "with fresh noise: epsilon = " in comparison.explain()
        assert all(row.epsilon == math.inf for row in lethe.compare(run, DELTA, over="noise", values=[1.0, 10.0]).certified)


def test_the_word_of_a_document_is_checked_again_and_there_only_where_it_is_true() -> None:
    run, seeded = make_run(), make_run(seeded=True)
    assert "seeded" not in run.to_document()
    assert seeded.to_document()["seeded"] is True
    assert lethe.Run.from_document(seeded.to_document()) == seeded
    assert seeded.run_id != run.run_id
    content = lethe.certify(run, DELTA).to_dict()
    content["run"]["seeded"] = True
    with pytest.raises(InputError, match="from its run follows epsilon = inf"):
        recheck(lethe.Certificate.from_dict(content))
    content = {**mean_of_rows(), "guarantee": {"kind": "not_private"}, "with_fresh_noise": _MEAN.to_dict()}
    for number in (0, 0.0, 1):
        with pytest.raises(InputError, match="seeded needs to be true"):
            Statement.from_dict({**content, "seeded": number})


def test_a_seeded_run_cannot_be_planned_and_its_beginnings_are_no_release_either() -> None:
    run = make_run(seeded=True)
    for plan in (lethe.plan, lethe.allocate):
        with pytest.raises(InputError, match=r"seeded: true; .*(.|\n)*Do: set seeded to false"):
            plan(run, 1.0, DELTA)
        plan(with_fresh_noise(run), 1.0, DELTA)
    grown = cumulative_privacy(run, DELTA, points=3)
    assert set(grown.every_iterate) == set(grown.last_iterate) == {math.inf}


def test_other_accountants_are_told() -> None:
    interop = pytest.importorskip("lethe.integrations.dp_accounting")
    from dp_accounting.dp_event import NonPrivateDpEvent
    from dp_accounting.privacy_accountant import NeighboringRelation

    run = make_run(seeded=True)
    assert isinstance(interop.to_dp_event(lethe.certify(run, DELTA)).event, NonPrivateDpEvent)
    ledger = interop.LetheAccountant(NeighboringRelation.REPLACE_ONE)
    ledger.compose(interop.LastIterateDpEvent(with_fresh_noise(run), "one"))
    assert ledger.get_epsilon(DELTA) < math.inf
    ledger.compose(interop.LastIterateDpEvent(run, "two"))
    assert ledger.get_epsilon(DELTA) == math.inf


_MEAN = gaussian_guarantee(2.0, 4.0)


def written(guarantee: lethe.guarantees.Guarantee, rule: str | None, *parts: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """A file that somebody typed, without a single hypothesis."""
    return {
        "kind": "statement",
        "name": rule or "a sum",
        "guarantee": guarantee.to_dict(),
        "neighbours": "replace_one",
        "findings": [],
        "citations": [],
        "derivation": None if rule is None else {"kind": rule, "parameters": numbers, **({"parts": list(parts)} if parts else {})},
        "records": None,
        "release_id": "",
        "lethe": lethe.__version__,
    }


def mean_of_rows() -> dict[str, Any]:
    return written(_MEAN, "mean of rows", numbers={"norm": 1.0, "noise_std": 4.0})


def declared(content: dict[str, Any]) -> str:
    return "\n".join(f"{one.name}: {one.words}" for one in recheck_statement(Statement.from_dict(content)).declared)


def test_a_file_that_leaves_out_its_hypotheses_is_told_to_rest_on_its_word() -> None:
    assert "mechanism: that mean of rows ran with these numbers" in declared(mean_of_rows())
    twice = written(_MEAN, "composition", mean_of_rows(), numbers={})
    assert "mechanism: that mean of rows ran with these numbers" in declared(twice)
    found = lethe.total([Statement.from_dict(mean_of_rows())], 1e-6)
    assert any("mean of rows ran with these numbers" in line for line in found.declared)
    assert any("ran with these numbers" in line for line in lethe.verify(Statement.from_dict(mean_of_rows())).declared)


def test_that_parts_are_disjoint_nothing_shows_and_it_is_told() -> None:
    both = written(_MEAN, "disjoint parts", mean_of_rows(), mean_of_rows(), numbers={})
    assert "disjoint parts: of disjoint parts, each record in one of them" in declared(both)
    assert "disjoint parts: of" in declared(written(_MEAN, "composition", both, numbers={}))
    content = written(_MEAN, "disjoint parts", mean_of_rows(), mean_of_rows(), numbers={"counts": [5, 3]})
    with pytest.raises(InputError, match="disjoint parts needs"):
        declared(content)


def test_what_the_code_saw_to_is_not_called_declared() -> None:
    enforced = holds("rows", "of norm at most 1", evidence="enforced")
    made = Statement(
        name="mean",
        guarantee=_MEAN,
        neighbours="replace_one",
        findings=(enforced,),
        citations=(),
        derivation=derivation("mean of rows", norm=1.0, noise_std=4.0),
    )
    assert recheck_statement(made).declared == ()
    assert "mean ran with these numbers" in declared(made.to_dict())


def test_fewer_records_than_the_phases_go_through_are_refused() -> None:
    phases = [{"first": 0, "stop": 60_000, "touches": 3, "sensitivity": 1.0, "noise_std": 10.0}]
    content = written(phases_guarantee(phases), "phases", numbers={"phases": phases})
    with pytest.raises(InputError, match="it says 10 records, and a release in it is of 60000"):
        declared({**content, "records": 10})
    assert recheck_statement(Statement.from_dict({**content, "records": 60_000})).statement.records == 60_000
    assert recheck_statement(Statement.from_dict(content)).statement.records == 60_000


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove"])
def test_a_guarantee_of_other_neighbours_is_refused(relation: Neighbours) -> None:
    step = SampledGaussian(sampling_probability=0.01, noise=(1.0,), counts=(100,), relation=relation, design="poisson")
    with pytest.raises(InputError, match=f"is about {relation}"):
        declared(written(step, None, numbers={}))
    law = PoissonRepetitions(rate=5.0)
    numbers = {"one_try": step.to_dict(), "repetitions": law.to_dict(), "delta": 1e-6}
    searched = selection_guarantee(step, law, delta=1e-6)
    with pytest.raises(InputError, match=f"is about {relation}"):
        declared(written(searched, "private selection", numbers=numbers))
    with pytest.raises(InputError, match=f"is about {relation}"):
        Statement.from_dict(written(step, None, numbers={}))
    assert "one try of" in declared({**written(searched, "private selection", numbers=numbers), "neighbours": relation})


@pytest.mark.parametrize(
    "sensitivity",
    [
        lambda tiny: moment_sensitivity(tiny, 3, "replace_one"),
        lambda tiny: moments_sensitivity(norm=tiny),
        lambda tiny: gaussian_release(tiny, 1e308).guarantee.delta(0.0),
        lambda tiny: output_sensitivity(records=10**12, regularisation=1e300, gradient_bound=tiny, tolerance=0.0),
    ],
)
def test_a_sensitivity_too_small_for_floats_is_not_zero(sensitivity: Callable[[float], float]) -> None:
    assert sensitivity(1e-170) > 0.0
    assert gaussian_guarantee(sensitivity(1e-170), 1e300).epsilon(0.0) == math.inf


def test_squares_of_tiny_norms_are_rounded_up() -> None:
    # (2.7e-162)^2 = 7.29e-324 is between the smallest float, 4.94e-324, and the next one.
    assert 1e-323 <= moment_sensitivity(2.7e-162, 1, "zero_out") <= 2e-323
    content = written(lethe.guarantees.GDP(0.0), "largest eigenvalue", numbers={"norm": 1e-162, "records": 10**6, "noise_std": 1.0})
    # 0 and the smallest float are the same but for rounding; kept is the one that was computed.
    assert recheck_statement(Statement.from_dict(content)).statement.guarantee.epsilon(0.0) == math.inf

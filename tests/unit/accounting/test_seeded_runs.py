"""A seeded run: nothing is proved of it anywhere, and everybody who asks is told why, and what fresh noise would have given."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from helpers import DESIGNS, batches, make_run, with_fresh_noise
from typer.testing import CliRunner

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.accounting.cumulative import cumulative_privacy
from lethe.accounting.recheck import recheck
from lethe.calculus.guarantees import NotPrivate
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import FRESH_NOISE
from lethe.cli.app import app
from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.theorems.registry import ALL

DELTA = 1e-5


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("release", ["last", "all"])
def test_nothing_is_certified_of_a_seeded_run(design: str, release: str) -> None:
    run = make_run(batches=batches(design, 10), release=release, seeded=True)
    certificate, fresh = lethe.certify(run, DELTA), lethe.certify(with_fresh_noise(run), DELTA)
    assert certificate.epsilon == math.inf > fresh.epsilon
    assert certificate.guarantee == NotPrivate()
    assert certificate.theorem == fresh.theorem
    failing = [finding for finding in certificate.findings if finding.status == "fails"]
    assert [finding.name for finding in failing] == [FRESH_NOISE]
    assert failing[0].detail.endswith(f"with fresh noise: epsilon = {shown(fresh.epsilon)} by {fresh.theorem}")
    line = next(line for line in certificate.explain().splitlines() if line.startswith("NOT PRIVATE"))
    assert "seed" in line
    assert failing[0].detail in line
    again = lethe.Certificate.from_dict(json.loads(to_json(certificate.to_dict())))
    assert again.explain() == certificate.explain()
    recheck(again)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
def test_no_theorem_says_anything_finite(design: str) -> None:
    run = make_run(batches=batches(design, 10), seeded=True)
    for verdict in evaluate_theorems(run, ALL):
        if verdict.bound is not None:
            assert verdict.bound.guarantee == verdict.theorem.bound(run).guarantee == NotPrivate()
            assert verdict.with_fresh_noise == verdict.theorem.bound(with_fresh_noise(run))
    comparison = lethe.compare(run, DELTA)
    assert not any(row.proves for row in comparison.rows)
    assert all(row.epsilon in (None, math.inf) for row in comparison.rows)
    assert "from a seed" in comparison.explain()
    assert "with fresh noise: epsilon = " in comparison.explain()
    sweep = lethe.compare(run, DELTA, over="noise", values=[1.0, 10.0])
    assert all(row.epsilon == math.inf for row in sweep.certified)


def test_a_certificate_of_a_run_without_seed_is_refused_for_one_with() -> None:
    """The word in a document decides, so that word is part of what is checked again."""
    content = lethe.certify(make_run(), DELTA).to_dict()
    content["run"]["seeded"] = True
    with pytest.raises(InputError, match="from its run follows epsilon = inf"):
        recheck(lethe.Certificate.from_dict(content))


def test_documents_name_it_only_where_it_is_true() -> None:
    run = make_run()
    assert "seeded" not in run.to_document()
    seeded = run.replace(seeded=True)
    assert seeded.to_document()["seeded"] is True
    assert lethe.Run.from_document(seeded.to_document()) == seeded
    assert seeded.run_id != run.run_id
    with pytest.raises(InputError, match="seeded"):
        make_run(seeded="no")


@pytest.mark.slow
def test_a_seeded_run_cannot_be_planned() -> None:
    run = make_run(seeded=True)
    for plan in (lethe.plan, lethe.allocate):
        with pytest.raises(InputError, match=r"seeded: true; .*(.|\n)*Do: set seeded to false"):
            plan(run, 1.0, DELTA)
        plan(with_fresh_noise(run), 1.0, DELTA)


def test_its_beginnings_are_no_release_either() -> None:
    grown = cumulative_privacy(make_run(seeded=True), DELTA, points=3)
    assert set(grown.every_iterate) == set(grown.last_iterate) == {math.inf}


@pytest.mark.slow
def test_other_accountants_are_told(tmp_path: Path) -> None:
    interop = pytest.importorskip("lethe.integrations.dp_accounting")
    events = pytest.importorskip("dp_accounting").dp_event
    from lethe.accounting.dp_events import RELATIONS

    run = make_run(seeded=True)
    exported = interop.to_dp_event(lethe.certify(run, DELTA))
    assert isinstance(exported.event, events.NonPrivateDpEvent)
    ledger = interop.LetheAccountant(RELATIONS[run.neighbours])
    ledger.compose(interop.LastIterateDpEvent(with_fresh_noise(run), "one"))
    assert ledger.get_epsilon(DELTA) < math.inf
    ledger.compose(interop.LastIterateDpEvent(run, "two"))
    assert ledger.get_epsilon(DELTA) == math.inf
    path = tmp_path / "run.yaml"
    run.save(path)
    said = CliRunner().invoke(app, ["certify", str(path), "--delta", str(DELTA)])
    assert "NOT PRIVATE: no release: " in said.stdout

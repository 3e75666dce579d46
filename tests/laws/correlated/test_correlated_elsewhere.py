"""Runs with correlated noise in comparisons, totals, reports, and among the events of dp_accounting."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import make_run

import lethe
from lethe.accounting.certify import cumulative_privacy
from lethe.accounting.compare import compare
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.calculus.guarantees import GDP
from lethe.errors import InputError
from lethe.integrations.dp_accounting import IterateDpEvent, LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.report.formats import markdown
from lethe.report.sections.build import document_of
from lethe.report.subject import subject_of
from lethe.run.noise import LowerTriangular
from lethe.run.noise.strategies import growths

DELTA = 1e-5
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}


def run_of(**changes: Any) -> lethe.Run:
    return make_run(**{"noise": BANDED, "release": "all", "neighbours": "zero_out", **changes})


def mu_of(run: lethe.Run) -> float:
    """By the definition alone."""
    assert run.noise is not None
    assert isinstance(run.noise_multiplier, float)
    return sensitivity(as_matrix(run.noise.strategy(run.total_steps)), run.steps_per_pass) / run.noise_multiplier


def test_the_event_is_one_gaussian_of_the_strategy_s_sensitivity() -> None:
    for neighbours, factor in (("zero_out", 1.0), ("replace_one", 2.0)):
        run = run_of(neighbours=neighbours)
        certificate = lethe.certify(run, DELTA)
        exported = to_dp_event(certificate)
        assert isinstance(exported.event, dp_accounting.GaussianDpEvent)
        assert exported.event.noise_multiplier == pytest.approx(1.0 / (factor * mu_of(run)), rel=1e-9)
        assert exported.event.noise_multiplier <= 1.0 / (factor * mu_of(run)) * (1 + 1e-13)
        accountant = PLDAccountant(exported.neighbouring_relation).compose(exported.event)
        assert accountant.get_epsilon(DELTA) == pytest.approx(certificate.epsilon, rel=1e-3)


def test_a_secret_slot_is_no_event_but_adds_up() -> None:
    run = run_of(batches={"design": "shuffled_once", "size": 10})
    with pytest.raises(InputError, match="order of the batches is secret"):
        to_dp_event(lethe.certify(run, DELTA))
    accountant = LetheAccountant(NeighboringRelation.REPLACE_SPECIAL if run.neighbours == "zero_out" else NeighboringRelation.REPLACE_ONE)
    accountant.compose(LastIterateDpEvent(run, "monday"))
    assert accountant.get_epsilon(DELTA) == pytest.approx(lethe.certify(run, DELTA).epsilon, rel=1e-9)


def test_executions_add_up_and_whatever_is_shown_of_one_costs_the_same() -> None:
    run = run_of(neighbours="replace_one", release="last")
    accountant = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(LastIterateDpEvent(run, "monday"))
    once = accountant.get_epsilon(DELTA)
    assert once == pytest.approx(GDP(2 * mu_of(run)).epsilon(DELTA), rel=1e-9)
    accountant.compose(IterateDpEvent(run, 3, "monday"))
    assert accountant.get_epsilon(DELTA) == once
    accountant.compose(LastIterateDpEvent(run, "tuesday"))
    assert accountant.get_epsilon(DELTA) == pytest.approx(GDP(2 * math.sqrt(2) * mu_of(run)).epsilon(DELTA), rel=1e-9)


def test_sweeps_keep_the_strategy(tmp_path: Path) -> None:
    run = run_of()
    for over, values, moved in (
        ("noise", [2.0, 10.0], [run.replace(noise_multiplier=value) for value in (2.0, 10.0)]),
        ("passes", [1, 8], [run.replace(passes=value) for value in (1, 8)]),
        ("steps", [15, 60], [run.replace(passes=None, steps=value) for value in (15, 60)]),
    ):
        lines: Any = compare(run, DELTA, over=over, values=values, theorems=["correlated-noise"]).lines  # type: ignore[call-overload]
        assert [row.epsilon for row in lines[0]] == pytest.approx([GDP(mu_of(one)).epsilon(DELTA) for one in moved], rel=1e-9)
    assert len(compare(run, DELTA, over="noise").values) > 5
    matrix = run_of(noise=LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy"))
    with pytest.raises(InputError, match="for 50 steps; the run has 10"):
        compare(matrix, DELTA, over="steps", values=[10])
    with pytest.raises(InputError, match="for 50 steps; the run has"):
        cumulative_privacy(matrix, DELTA, points=3)


def test_what_earlier_ends_would_have_cost() -> None:
    run = run_of(noise=BUFFERED)
    found = cumulative_privacy(run, DELTA, points=4)
    expected = [GDP(mu_of(run.replace(passes=None, steps=steps))).epsilon(DELTA) for steps in found.steps]
    assert found.every_iterate == pytest.approx(expected, rel=1e-9)
    assert found.last_iterate == found.every_iterate
    assert found.every_iterate[-1] == lethe.certify(run, DELTA).epsilon


def test_the_noise_of_a_step_is_that_of_the_inverse(tmp_path: Path) -> None:
    for noise in (BANDED, BUFFERED, LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy")):
        run = run_of(noise=noise)
        assert run.noise is not None
        inverse = np.linalg.inv(as_matrix(run.noise.strategy(50)))
        assert growths(run.noise, 50) == pytest.approx(np.sqrt(np.diagonal(inverse @ inverse.T)), rel=1e-9)


def test_the_report_says_how_noise_is_correlated_and_how_large_it_is() -> None:
    run = run_of()
    assert run.noise is not None
    page = document_of(subject_of(lethe.certify(run, DELTA)))
    sections = {section.key: section for section in page.sections}
    text = markdown(page)
    assert "correlated over the steps (banded Toeplitz noise)" in text
    assert "what is drawn for a step has the multiplier 5" in text
    table = next(block for block in sections["noise"].blocks if hasattr(block, "rows"))
    largest = 5.0 * growths(run.noise, 50)
    shown = {int(row[0]): float(row[1]) for row in table.rows}  # type: ignore[attr-defined]
    assert shown == pytest.approx({step: largest[step - 1] for step in shown}, rel=1e-3)
    assert sections["steps"].data["every_iterate"][-1] == pytest.approx(lethe.certify(run, DELTA).epsilon)  # type: ignore[index, call-overload]

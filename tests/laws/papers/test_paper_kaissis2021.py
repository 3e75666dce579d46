"""Kaissis et al. 2021 (arXiv:2109.10528): the sensitivity index, and that it says no more than Gaussian composition."""

import math

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from scipy import integrate, stats

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.composition import touch_mus
from lethe.theorems.literature.kaissis_2021 import Kaissis2021
from lethe_experiments.kaissis_attack import roc_auc


def _mu(run: lethe.Run) -> float:
    guarantee = Kaissis2021().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu


def test_the_formula_of_the_paper() -> None:
    """psi = Delta / sigma a step, sqrt(N) psi for N of them: replace one with noise multiplier 5 is 2 / 5 a touch, once a pass."""
    assert touch_mus(make_run()) == pytest.approx(np.full(50, 0.4), rel=1e-15)
    assert _mu(make_run()) == pytest.approx(math.sqrt(5) * 0.4, rel=1e-14)
    assert _mu(make_run(neighbours="zero_out")) == pytest.approx(math.sqrt(5) * 0.2, rel=1e-14)
    assert _mu(make_run(batches={"design": "poisson", "size": 10})) == pytest.approx(math.sqrt(50) * 0.4, rel=1e-14)
    assert _mu(make_run(steps=51)) == pytest.approx(math.sqrt(6) * 0.4, rel=1e-14)  # the first batch is used once more
    assert _mu(make_run(steps=7)) == pytest.approx(0.4, rel=1e-14)


def test_balle_and_wang_at_psi_1_and_3() -> None:
    """Theorem 8 of Balle & Wang solved at psi = 1 and 3, to six decimals."""
    one = Kaissis2021().bound(make_run(passes=1, neighbours="zero_out", noise_multiplier=1.0)).guarantee
    three = Kaissis2021().bound(make_run(passes=9, neighbours="zero_out", noise_multiplier=1.0)).guarantee
    assert [one.epsilon(1e-5), one.epsilon(1e-3)] == pytest.approx([4.377178, 3.138671], abs=1e-6)
    assert [three.epsilon(1e-5), three.epsilon(1e-3)] == pytest.approx([16.675494, 13.088179], abs=1e-6)


def test_the_worst_slot_of_a_schedule() -> None:
    """Noise 1, 2, 3, 4, ... in two passes of three steps: slot 1 has (1, 4), and a fresh order may meet 1 and then 4 as well."""
    noise = [4.0, 2.0, 5.0, 1.0, 3.0, 6.0]
    changes = {"records": 30, "passes": 2, "noise_multiplier": noise, "neighbours": "zero_out"}
    assert _mu(make_run(**changes)) == pytest.approx(math.sqrt(1 / 16 + 1), rel=1e-14)
    assert _mu(make_run(**changes, batches={"design": "shuffled", "size": 10})) == pytest.approx(math.sqrt(1 / 4 + 1), rel=1e-14)


@pytest.mark.parametrize("design", ["full", "cyclic"])
def test_exactly_the_last_iterate_of_a_linear_run_with_full_batches_and_above_it_with_others(design: str) -> None:
    """Differences in one direction: mean difference (touches) s, variance T tau^2."""
    run = make_run(batches=batches(design, 10), steps=20, loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0})
    touches = 20 if design == "full" else 2
    exact = touches * run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
    assert _mu(run) >= exact * (1 - 1e-14)
    if design == "full":
        assert _mu(run) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("index", [0.0, 0.3, 1.0, 4.0])
def test_the_area_under_the_curve(index: float) -> None:
    """The integral of the exact trade-off: false positives a, true positives Phi(Phi^-1(a) + psi)."""
    area, error = integrate.quad(lambda x: stats.norm.cdf(x + index) * stats.norm.pdf(x), -12, 12)
    assert roc_auc(index) == pytest.approx(area, abs=10 * error + 1e-12)
    assert roc_auc(math.inf) == 1.0


def test_it_needs_a_bounded_gradient_only_and_says_where_it_stands() -> None:
    for design in DESIGNS:
        assert first_failure(Kaissis2021().examine(make_run(batches=batches(design, 10), release="all"))) is None
    assert Kaissis2021().standing.soundness == "dominated"
    assert Kaissis2021().standing.usable

"""Bok, Su, Altschuler 2024 (arXiv:2403.00278): their closed forms against the numbers that they print."""

import csv
import math
from importlib import resources

import pytest
from bok_2024_runs import BALL, LINEAR, mu_of
from helpers import make_run

from lethe.theorems.literature.bok_2024 import Bok2024CGD, Bok2024CGDDomain, Bok2024GD, Bok2024GDDomain, cgd_domain_printed_mu, cgd_mu
from lethe.theorems.literature.bok_2024_sampled import Bok2024SGD
from lethe_experiments.bok_formulas import cgd_domain_passes, gd_domain_printed_mu, sgd_clt_mu

ROWS = list(csv.DictReader((resources.files("lethe_experiments") / "data" / "bok2024_tables.csv").read_text().splitlines()))


@pytest.mark.parametrize("row", [row for row in ROWS if row["method"].startswith("Bok GDP")], ids=lambda row: f"{row['c']}-{row['t']}")
def test_the_tables_of_the_paper(row: dict[str, str]) -> None:
    """Step 1 and smoothness 1, so that the step contracts by c; replace one, so that s / tau = 2 / z."""
    cyclic = row["algorithm"] == "NoisyCGD"
    slots, c, ratio = int(row["l"] or 1), float(row["c"]), 2 / 3 if "2/3" in row["unit_sens"] else 0.1
    run = make_run(
        records=10 * slots,
        batches={"design": "cyclic", "size": 10} if cyclic else {"design": "full"},
        passes=int(row["E"] if cyclic else row["t"]),
        step_size=1.0,
        noise_multiplier=2 / ratio,
        loss={"kind": "strongly_convex", "strong_convexity": 1 - c, "smoothness": 1.0, "gradient_bound": 1.0},
    )
    assert mu_of(Bok2024CGD() if cyclic else Bok2024GD(), run) == pytest.approx(float(row["mu"]), rel=5e-6)  # six digits are printed


@pytest.mark.parametrize(("c", "slots", "printed"), [(0.98, 10, 0.270), (0.99, 10, 0.336), (0.995, 10, 0.439), (0.98, 20, 0.216),
                                                     (0.99, 20, 0.237), (0.995, 20, 0.276), (0.98, 40, 0.203), (0.99, 40, 0.208),
                                                     (0.995, 40, 0.219)])  # fmt: skip
def test_the_table_of_cyclic_descent(c: float, slots: int, printed: float) -> None:
    """L / (b sigma) = 0.2, 500 passes, three digits printed; composition there is sqrt(500) / 5 = 4.472."""
    assert cgd_mu(c, slots, 500, 0.2) == pytest.approx(printed, abs=5e-4)
    assert cgd_mu(1.0, 1, 500, 0.2) == pytest.approx(4.472, abs=5e-4)


def test_the_tables_of_bounded_domains() -> None:
    """D = 1. Full batches: sigma = 8, (L/n, eta) = (.5, .1), so D/s = 20: .559 from 80 steps on. Cyclic: sigma = 3, l = 20,
    (L/b, eta) = (.5, .02), D/s = 100: .764. l = 10, (.25, .04), D/s = 100: from 41 passes on (their script prints 31: it multiplies
    where it should add)."""
    assert gd_domain_printed_mu(20.0, 0.5 / 8) == pytest.approx(0.559, abs=5e-4)
    assert (gd_domain_printed_mu(20.0, 0.5 / 8) / (0.5 / 8)) ** 2 == pytest.approx(80, rel=1e-12)
    assert cgd_domain_printed_mu(100.0, 20, 0.5 / 3) == pytest.approx(0.764, abs=5e-4)
    assert cgd_domain_passes(100.0, 10) == 41


@pytest.mark.slow
@pytest.mark.parametrize(("passes", "low", "high"), [(50, 4.4371, 4.4391), (100, 6.6528, 6.6548)])
def test_composition_of_sampled_batches(passes: int, low: float, high: float) -> None:
    """p = .025, L / (b sigma) = 2/3: certified brackets of the authors' numerical composition at delta = 1e-5, and their CLT values."""
    run = make_run(
        records=400,
        batches={"design": "without_replacement", "size": 10},
        passes=passes,
        noise_multiplier=3.0,
        loss=LINEAR,
    )
    assert low <= Bok2024SGD().bound(run).guarantee.epsilon(1e-5) <= high
    assert sgd_clt_mu(0.025, 40 * passes, 2 / 3) == pytest.approx({50: 1.02531, 100: 1.45001}[passes], rel=5e-6)


def test_a_run_of_each_domain_bound() -> None:
    """D = 1 and s = 2 * .5 / 10 = .1 under replace one, .05 under zero out: D/s = 10 and 20; z = 5, so s/tau = .4 and .2."""
    convex = {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}
    full = make_run(records=10, batches={"design": "full"}, passes=50, regulariser=BALL, loss=convex)
    assert mu_of(Bok2024GDDomain(), full) == pytest.approx(0.4 * math.sqrt(4 * 10), rel=1e-12)
    assert mu_of(Bok2024GDDomain(), full.replace(neighbours="zero_out")) == pytest.approx(0.2 * math.sqrt(50), rel=1e-12)
    cyclic = make_run(passes=50, regulariser=BALL, loss=convex)
    assert mu_of(Bok2024CGDDomain(), cyclic) == pytest.approx(0.4 * math.sqrt(1 + 4), rel=1e-12)
    assert mu_of(Bok2024CGDDomain(), cyclic.replace(passes=4)) == pytest.approx(0.4 * 2, rel=1e-12)

"""Bok, Su, Altschuler 2024 (arXiv:2403.00278): closed forms against printed numbers, exact arithmetic, linear runs, the engine; windows."""

import csv
import itertools
import math
from fractions import Fraction
from importlib import resources

import numpy as np
import oracles
import pytest
from helpers import make_run
from how_many import examples
from scipy.special import ndtr
from scipy.stats import binom
from theorem_bounds import mu_of

import lethe
from lethe.calculus.guarantees import Tightest
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.certificates.findings import first_failure
from lethe.theorems.literature.bok_2024 import (
    Bok2024CGD,
    Bok2024CGDDomain,
    Bok2024GD,
    Bok2024GDDomain,
    cgd_domain_printed_mu,
    cgd_mu,
    gd_domain_mu,
    gd_mu,
)
from lethe.theorems.literature.bok_2024_sampled import Bok2024SGD, Bok2024SGDDomain, sgd_composition, sgd_domain_window, sgd_window
from lethe.theorems.shift.engine import solve
from lethe.theorems.shuffled.positions import worst_position
from lethe_experiments.bok_formulas import cgd_domain_passes, gd_domain_printed_mu, sgd_clt_mu

BALL = {"kind": "ball", "radius": 0.5}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.2, "smoothness": 1.0, "gradient_bound": 1.0}
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}


# What the sampled forms are made of.


def test_the_windows_as_printed() -> None:
    """G((2 sqrt2 L / b sigma)(c^(t-tau+1) - c^t)/(1-c)) (x) C_p(G(2 sqrt2 L / b sigma)) (x) C_p(G(2 L / b sigma))^(t-tau)."""
    c, t, tau, m = 0.9, 20, 15, 0.3
    guarantee = sgd_window(0.1, c, t, t - tau + 1, 0.5, m)
    assert isinstance(guarantee, SampledGaussian)
    assert guarantee.gaussian_mu == pytest.approx(2 * math.sqrt(2) * m * (c ** (t - tau + 1) - c**t) / (1 - c), rel=1e-12)
    assert [2 / z for z in guarantee.noise] == pytest.approx([2 * math.sqrt(2) * m, 2 * m], rel=1e-12)
    assert guarantee.counts == (1, t - tau)
    domain = sgd_domain_window(0.1, 3.0, 8, 0.5, m)
    assert isinstance(domain, SampledGaussian)
    assert domain.gaussian_mu == pytest.approx(math.sqrt(2) * 3.0 / math.sqrt(8), rel=1e-12)
    assert (2 / domain.noise[0], domain.counts) == (pytest.approx(2 * math.sqrt(2) * m, rel=1e-12), (8,))
    limit = sgd_window(0.1, 1.0, t, 6, 0.5, m)
    assert isinstance(limit, SampledGaussian)
    assert limit.gaussian_mu == pytest.approx(2 * math.sqrt(2) * m * 14, rel=1e-12)


def test_the_best_window_is_found() -> None:
    """Long runs, where windows pay: no window and share of a coarse grid is better by more than a per cent."""
    sgd = make_run(records=100, batches={"design": "without_replacement", "size": 10}, steps=3000, noise_multiplier=12.0, loss=STRONG)
    found = Bok2024SGD().bound(sgd).guarantee.epsilon(1e-5)
    assert found < sgd_composition(0.1, 3000, 2 / 12).epsilon(1e-5)
    c = 1 - 0.5 * 0.2
    tried = [sgd_window(0.1, c, 3000, window, share, 2 / 12).epsilon(1e-5) for window, share in ((30, 0.5), (60, 0.9))]
    assert found <= min(tried) * 1.01
    domain = sgd.replace(loss={"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}, regulariser=BALL, noise_multiplier=30.0)
    found = Bok2024SGDDomain().bound(domain).guarantee.epsilon(1e-5)
    tau = float(domain.noise_stds[0])
    tried = [sgd_domain_window(0.1, 1.0 / tau, window, share, 2 / 30).epsilon(1e-5) for window, share in ((40, 0.5), (40, 0.65))]
    assert found <= min(tried) * 1.01


def test_every_window_of_a_run_is_the_formula_in_its_units() -> None:
    """The share is read off the noise, z = sqrt(share) b sigma / L, and the rest of the noise has to hide the shift."""
    run = make_run(batches={"design": "without_replacement", "size": 10}, steps=3000, noise_multiplier=30.0, loss=STRONG, regulariser=BALL)
    m, tau = 2 / 30, 0.5 * 30 / 10
    for theorem, shift in ((Bok2024SGD(), lambda window: 2 * m * (0.9**window - 0.9**3000) / 0.1), (Bok2024SGDDomain(), lambda _: 1 / tau)):
        guarantee = theorem.bound(run).guarantee
        assert isinstance(guarantee, Tightest)
        composition, *windows = guarantee.parts
        assert composition == sgd_composition(0.1, 3000, m)
        assert windows
        for part in windows:
            assert isinstance(part, SampledGaussian)
            share, window = (min(part.noise) * m) ** 2, sum(part.counts)
            payments = window if theorem.name.endswith("domain") else 1
            assert part.gaussian_mu == pytest.approx(shift(window) / math.sqrt((1 - share) * payments), rel=1e-9)


def test_zero_out_counts_what_takes_the_records_place() -> None:
    run = make_run(batches={"design": "without_replacement", "size": 10})
    replaced, zeroed = (Bok2024SGD().bound(run.replace(neighbours=relation)).guarantee for relation in ("replace_one", "zero_out"))
    assert replaced == zeroed


RNG = np.random.default_rng(2403)


# Against exact arithmetic.


@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 1 - 2**-20, 1 - 2**-52])
def test_the_closed_forms_lose_no_digit(c: float) -> None:
    exact = Fraction(c)
    for steps in (1, 2, 7, 40):
        power = exact**steps
        expected = (1 - power) / (1 + power) * (1 + exact) / (1 - exact)
        assert gd_mu(c, steps, 1.0) ** 2 == pytest.approx(float(expected), rel=1e-14)
    for slots, passes in ((1, 3), (2, 1), (2, 2), (5, 8)):
        power, whole = exact ** (slots * (passes - 1)), exact ** (2 * slots - 2) * (1 - exact**2) / (1 - exact**slots) ** 2
        assert cgd_mu(c, slots, passes, 1.0) ** 2 == pytest.approx(float(1 + whole * (1 - power) / (1 + power)), rel=1e-14)


def test_a_step_of_2_over_m_that_rounds_up_is_refused() -> None:
    """For some M the float 2 / M times M is just above 2, so the step expands by a last digit."""
    smoothness, step = next((M, 2 / M) for M in (0.1 * k for k in range(3, 60)) if Fraction(M) * Fraction(2 / M) > 2)
    loss = {"kind": "convex", "smoothness": smoothness, "gradient_bound": 1.0}
    for size, accepted in ((step, False), (float(np.nextafter(step, 0)), True)):
        run = make_run(batches={"design": "full"}, step_size=size, loss=loss)
        assert (first_failure(Bok2024GD().examine(run)) is None) == accepted


# Against exact privacy.


@pytest.mark.parametrize(("c", "steps"), [(0.5, 4), (0.9, 30), (0.999, 300), (1.0, 50)])
def test_full_batches_are_exact(c: float, steps: int) -> None:
    """x -> c x with every difference in one direction is Gaussian: no bound may be smaller, and this one is no larger."""
    ones = np.ones(steps)
    assert gd_mu(c, steps, 0.7) == pytest.approx(oracles.linear_gaussian_mu_same_direction(c * ones, 0.7 * ones, ones), rel=1e-12)


def test_cyclic_batches_are_the_worst_position_of_the_engine() -> None:
    for _ in range(60):
        c, slots, passes = float(RNG.choice([RNG.uniform(0.2, 1), 0.999, 1.0])), int(RNG.integers(2, 9)), int(RNG.integers(1, 12))
        ones = np.ones(slots * passes)
        worst = worst_position(c * ones, 0.3 * ones, ones, slots)[0]
        assert cgd_mu(c, slots, passes, 0.3) == pytest.approx(worst, rel=1e-10)
        touches = np.where(np.arange(1, slots * passes + 1) % slots == 0, 0.3, 0.0)
        assert cgd_mu(c, slots, passes, 0.3) >= oracles.linear_gaussian_mu_same_direction(c * ones, touches, ones) * (1 - 1e-12)
    assert cgd_mu(0.8, 1, 6, 0.3) >= solve(np.full(6, 0.8), np.full(6, 0.3), np.ones(6)).mu  # one batch a pass: above the exact form


def test_domains_are_never_below_the_engine() -> None:
    for _ in range(examples(150)):
        diameter, steps = float(RNG.choice([RNG.uniform(0.05, 4), RNG.integers(1, 12)])), int(RNG.integers(1, 40))
        ones = np.ones(steps)
        best = solve(ones, ones, ones, diameter=diameter).mu
        assert best <= gd_domain_mu(diameter, steps, 1.0) * (1 + 1e-12)
        assert gd_domain_mu(diameter, steps, 1.0) <= min(gd_domain_printed_mu(diameter, 1.0), math.sqrt(steps)) * (1 + 1e-12) or (
            steps < diameter
        )
        if float(diameter).is_integer() and steps > 4 * diameter:
            assert gd_domain_mu(diameter, steps, 1.0) == pytest.approx(gd_domain_printed_mu(diameter, 1.0), rel=1e-14)
            assert gd_domain_mu(diameter, steps, 1.0) == pytest.approx(best, rel=1e-10)  # water filling: equal payments are optimal
        slots, passes = int(RNG.integers(1, 7)), int(RNG.integers(1, 14))
        ones = np.ones(slots * passes)
        worst = worst_position(ones, ones, ones, slots, diameter=diameter)[0]
        assert worst <= min(cgd_domain_printed_mu(diameter, slots, 1.0), math.sqrt(passes)) * (1 + 1e-12)


def test_the_cyclic_domain_bound_is_within_rounding_d_over_s_up_of_the_optimum() -> None:
    ones, last = np.ones(15), np.tile([0.0, 0.0, 1.0], 5)
    assert oracles.brute_force_windows(ones, last, ones, 2.0) <= cgd_domain_printed_mu(2.0, 3, 1.0) * (1 + 1e-6)
    assert cgd_domain_printed_mu(2.0, 3, 1.0) == pytest.approx(math.sqrt(1 + 8 / 3), rel=1e-14)


def _projected(diameter: float, noise: float, drawn: float, pull: float, steps: int, epsilon: float) -> float:
    """delta of x -> clip(x +- pull, if drawn, + noise) on an interval from its middle, the runs being mirror images."""
    chain = oracles.ProjectedChain(diameter, diameter / 2)
    laws = [chain.law([noise] * steps, [[(1 - drawn, 0.0), (drawn, way * pull)]] * steps) for way in (1, -1)]
    return oracles.law_delta(laws[0], laws[1], epsilon) - 2e-6  # the oracle's quadrature where the two densities cross


def test_domains_are_never_below_a_projected_run() -> None:
    """Linear losses whose gradients pull the two runs to opposite sides: s = 2 pulls; at every step, and drawn with p = 1/2."""
    exact = _projected(1.0, 0.3, 1.0, 0.1, 40, 1.0)
    assert lethe.guarantees.GDP(gd_domain_mu(1.0 / 0.2, 40, 0.2 / 0.3)).delta(1.0) >= exact > 0.2
    exact = _projected(1.0, 0.4, 0.5, 0.2, 30, 0.3)
    for window, share in ((1, 0.5), (4, 0.9), (12, 0.5)):
        assert sgd_domain_window(0.5, 1.0 / 0.4, window, share, 2 * 0.2 / 0.4).delta(0.3) >= exact > 0.1


def _hockey_stick(one: list[tuple[float, float]], other: list[tuple[float, float]], epsilon: float) -> float:
    """Of two mixtures of unit normals (weight, mean), the second the mirror image of the first, so that both directions agree."""
    edges = np.linspace(-12, 12, 48_001)
    first, second = (np.diff(sum(weight * ndtr(edges - mean) for weight, mean in mixture)) for mixture in (one, other))
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())  # a partition of the line: never above the exact value


def test_composition_is_never_below_a_linear_run() -> None:
    """Gradients of one record +-G and of all others 0: the number of times it is drawn is binomial, the last iterate a mixture."""
    steps, p, touch = 30, 0.2, 0.4
    bound = sgd_composition(p, steps, touch)
    drawn = [(float(binom.pmf(k, steps, p)), 0.5 * k * touch / math.sqrt(steps)) for k in range(steps + 1)]
    for epsilon in (0.0, 0.1, 0.3):
        exact = _hockey_stick(drawn, [(weight, -mean) for weight, mean in drawn], epsilon)
        assert bound.delta(epsilon) >= exact > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("c", [0.5, 0.9, 1.0])
def test_windows_are_never_below_a_contracting_linear_run(c: float) -> None:
    """x -> c x and p = 1/2: the 256 sequences of draws, each with its mean."""
    steps, touch = 8, 1.5
    weights = c ** np.arange(steps - 1, -1, -1.0)
    size = math.sqrt(float(weights @ weights))
    means = [0.5 * touch * float(weights @ np.array(draws)) / size for draws in itertools.product((0, 1), repeat=steps)]
    exact = _hockey_stick([(2.0**-steps, mean) for mean in means], [(2.0**-steps, -mean) for mean in means], 0.5)
    for window, share in ((1, 0.5), (2, 0.9), (5, 0.1), (8, 0.5)):
        assert sgd_window(0.5, c, steps, window, share, touch).delta(0.5) >= exact > 0.05


_TABLES = resources.files("lethe_experiments") / "data" / "bok2024_tables.csv"
_METHODS = ("GDP composition", "Bok GDP", "Bok GDP (exact)")  # tests/laws/experiments/test_reproduce.py has the other rows
ROWS = [row for row in csv.DictReader(_TABLES.read_text().splitlines()) if row["method"] in _METHODS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['paper_item']}-{row['c']}-{row['t']}-{row['method']}")
def test_the_tables_of_the_paper(row: dict[str, str]) -> None:
    """The cyclic and full-batch rows of Tables 1, 3, 4, 7 and Figure 1: step 1 and smoothness 1, so that the step contracts by c; replace
    one, so that s / tau = 2 / z. By the paper's theorem, and by `certify`."""
    composed, cyclic = row["method"] == "GDP composition", row["algorithm"] == "NoisyCGD"
    slots, c, ratio = int(row["l"] or 1) if cyclic else 1, float(row["c"] or 1.0), 2 / 3 if "2/3" in row["unit_sens"] else 0.1
    curved = {"kind": "strongly_convex", "strong_convexity": 1 - c} if c < 1 else {"kind": "convex"}
    run = make_run(
        records=10 * slots,
        batches={"design": "cyclic", "size": 10} if cyclic else {"design": "full"},
        passes=int(row["E"] if cyclic else row["t"]),
        step_size=1.0,
        noise_multiplier=2 / ratio,
        loss={**curved, "smoothness": 1.0, "gradient_bound": 1.0},
        release="all" if composed else "last",
    )
    certificate = lethe.certify(run, 1e-5)
    assert certificate.theorem == ("composition" if composed else "optimal-shift")
    assert isinstance(certificate.guarantee, lethe.guarantees.GDP)
    assert certificate.guarantee.mu == pytest.approx(float(row["mu"]), rel=5e-6)  # six digits are printed
    if row["epsilon"]:
        assert certificate.epsilon == pytest.approx(float(row["epsilon"]), rel=5e-6)
    if not composed:
        assert mu_of(Bok2024CGD() if cyclic else Bok2024GD(), run) == pytest.approx(float(row["mu"]), rel=5e-6)


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


@pytest.mark.parametrize(("passes", "low", "high", "clt"), [(50, 4.4371, 4.4391, 1.02531), (100, 6.6528, 6.6548, 1.45001)])
def test_composition_of_sampled_batches(passes: int, low: float, high: float, clt: float) -> None:
    """p = .025, L / (b sigma) = 2/3: certified brackets of the authors' numerical composition at delta = 1e-5, and their CLT values."""
    run = make_run(records=400, batches={"design": "without_replacement", "size": 10}, passes=passes, noise_multiplier=3.0, loss=LINEAR)
    assert low <= Bok2024SGD().bound(run).guarantee.epsilon(1e-5) <= high
    assert sgd_clt_mu(0.025, 40 * passes, 2 / 3) == pytest.approx(clt, rel=5e-6)


def test_a_run_of_each_domain_bound() -> None:
    """D = 1 and s = 2 * .5 / 10 = .1 under replace one, .05 under zero out: D/s = 10 and 20; z = 5, so s/tau = .4 and .2."""
    convex = {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}
    full = make_run(records=10, batches={"design": "full"}, passes=50, regulariser=BALL, loss=convex)
    assert mu_of(Bok2024GDDomain(), full) == pytest.approx(0.4 * math.sqrt(4 * 10), rel=1e-12)
    assert mu_of(Bok2024GDDomain(), full.replace(neighbours="zero_out")) == pytest.approx(0.2 * math.sqrt(50), rel=1e-12)
    cyclic = make_run(passes=50, regulariser=BALL, loss=convex)
    assert mu_of(Bok2024CGDDomain(), cyclic) == pytest.approx(0.4 * math.sqrt(1 + 4), rel=1e-12)
    assert mu_of(Bok2024CGDDomain(), cyclic.replace(passes=4)) == pytest.approx(0.4 * 2, rel=1e-12)

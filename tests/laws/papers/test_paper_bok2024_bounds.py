"""Bok, Su, Altschuler 2024 (arXiv:2403.00278): what the sampled forms are made of, who is never looser, and what is refused."""

import math

import pytest
from bok_2024_runs import BALL, STRONG
from helpers import make_run

from lethe.calculus.guarantees import Tightest
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.theorems.literature.bok_2024_sampled import Bok2024SGD, Bok2024SGDDomain, sgd_composition, sgd_domain_window, sgd_window

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


# What is refused.

FULL, CYCLIC, DRAWN = {"design": "full"}, {"design": "cyclic", "size": 10}, {"design": "without_replacement", "size": 10}

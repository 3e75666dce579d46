"""Bok, Su, Altschuler 2024 (arXiv:2403.00278): what the sampled forms are made of, who is never looser, and what is refused."""

import math
from typing import Any

import pytest
from bok_2024_runs import BALL, STRONG
from helpers import make_run

import lethe
from lethe.calculus.guarantees import Tightest
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.certificates.findings import first_failure
from lethe.theorems.base import Theorem
from lethe.theorems.literature.bok_2024 import Bok2024CGD, Bok2024CGDDomain, Bok2024GD, Bok2024GDDomain
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_zero_out_counts_what_takes_the_records_place() -> None:
    run = make_run(batches={"design": "without_replacement", "size": 10})
    replaced, zeroed = (Bok2024SGD().bound(run.replace(neighbours=relation)).guarantee for relation in ("replace_one", "zero_out"))
    assert replaced == zeroed


# Who is never looser.


@pytest.mark.sampled(6)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("regulariser", [None, BALL, [{"kind": "ridge", "strength": 0.3}, BALL]])
@pytest.mark.parametrize("design", [{"design": "full"}, {"design": "cyclic", "size": 10}])
def test_ours_is_never_looser(design: dict[str, Any], regulariser: Any, neighbours: str) -> None:
    unbounded = regulariser is None and neighbours == "zero_out"
    for loss in ({"kind": "convex", "smoothness": 2.0, "gradient_bound": 1.0}, STRONG):
        if loss is STRONG and unbounded:
            continue  # a strongly convex loss has no bounded gradient on all of space, only bounded differences
        for passes in (1, 3, 40):
            run = make_run(batches=design, regulariser=regulariser, neighbours=neighbours, loss=loss, passes=passes)
            ours = lethe.certify(run, 1e-5).epsilon
            for theorem in (Bok2024GD(), Bok2024GDDomain(), Bok2024CGD(), Bok2024CGDDomain()):
                if first_failure(theorem.examine(run)) is None:
                    assert ours <= theorem.bound(run).guarantee.epsilon(1e-5) * (1 + 1e-9)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("regulariser", [None, BALL])
def test_sampling_and_iteration_together_are_never_looser(regulariser: Any) -> None:
    """Long runs, where a window pays: ours counts a drawn record once where the paper counts it twice, and spreads the shift."""
    run = make_run(batches={"design": "without_replacement", "size": 10}, steps=2000, noise_multiplier=15.0, loss=STRONG)
    run, theorem = run.replace(regulariser=regulariser), Bok2024SGDDomain() if regulariser else Bok2024SGD()
    ours = lethe.certify(run, 1e-5).epsilon
    assert ours <= theorem.bound(run).guarantee.epsilon(1e-5) * (1 + 1e-9)


# What is refused.

FULL, CYCLIC, DRAWN = {"design": "full"}, {"design": "cyclic", "size": 10}, {"design": "without_replacement", "size": 10}
THEOREMS: tuple[tuple[Theorem, dict[str, Any]], ...] = (
    (Bok2024GD(), {"batches": FULL}),
    (Bok2024GDDomain(), {"batches": FULL, "regulariser": BALL}),
    (Bok2024CGD(), {"batches": CYCLIC}),
    (Bok2024CGDDomain(), {"batches": CYCLIC, "regulariser": BALL}),
    (Bok2024SGD(), {"batches": DRAWN}),
    (Bok2024SGDDomain(), {"batches": DRAWN, "regulariser": BALL}),
)
BROKEN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"release": "all"}, "release"),
    ({"batches": {"design": "poisson", "size": 10}}, "batches"),
    ({"batches": {"design": "shuffled", "size": 10}}, "batches"),
    ({"batches": {"design": "balls_in_bins", "size": 10}}, "batches"),
    ({"loss": {"kind": "smooth", "smoothness": 0.1, "gradient_bound": 1.0}}, "curvature"),
    ({"loss": {"kind": "unknown", "gradient_bound": 1.0}}, "smoothness"),
    ({"loss": {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}}, "smoothness"),
    ({"clip_norm": 0.1}, "clipping"),
    ({"step_size": 4.01}, "step size"),
    ({"noise_at": "pass_ends"}, "constant schedule"),
    ({"step_size": {"schedule": "exponential", "first": 0.5, "ratio": 0.9}}, "constant schedule"),
    ({"noise_multiplier": 0.0}, "constant schedule"),
)


@pytest.mark.parametrize(("changes", "hypothesis"), BROKEN)
@pytest.mark.parametrize(("theorem", "fitting"), THEOREMS, ids=lambda value: value.name if isinstance(value, Theorem) else "")
def test_it_refuses_by_name(theorem: Theorem, fitting: dict[str, Any], changes: dict[str, Any], hypothesis: str) -> None:
    assert first_failure(theorem.examine(make_run(**fitting))) is None
    if "noise_at" in changes and fitting["batches"] == FULL:
        return  # one step a pass: every step is a pass's end
    failure = first_failure(theorem.examine(make_run(**{**fitting, **changes})))
    assert failure is not None
    assert failure.name == hypothesis


@pytest.mark.parametrize("theorem", [Bok2024GDDomain(), Bok2024CGDDomain(), Bok2024SGDDomain()], ids=lambda theorem: theorem.name)
def test_a_domain_is_needed(theorem: Theorem) -> None:
    batches = next(fitting["batches"] for candidate, fitting in THEOREMS if candidate.name == theorem.name)
    failure = first_failure(theorem.examine(make_run(batches=batches)))
    assert failure is not None
    assert failure.name == "domain"


@pytest.mark.parametrize("theorem", [Bok2024CGD(), Bok2024CGDDomain()], ids=lambda theorem: theorem.name)
def test_whole_passes_are_needed(theorem: Theorem) -> None:
    failure = first_failure(theorem.examine(make_run(steps=15, regulariser=BALL)))
    assert failure is not None
    assert failure.name == "passes"


@pytest.mark.slow
def test_hardly_any_noise_is_no_privacy_and_no_crash() -> None:
    for theorem, fitting in THEOREMS:
        assert theorem.bound(make_run(**fitting, noise_multiplier=1e-60)).guarantee.epsilon(1e-5) > 1e50
        assert theorem.bound(make_run(**fitting, noise_multiplier=1e60)).guarantee.epsilon(1e-5) < 1e-6

"""Steps without a record make a model forget it: exact linear laws, brute force over places, and exact chains, both directions."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run
from oracles import Floats, ProjectedChain, brute_force_shift, law_epsilon
from theorem_bounds import mu_of

import lethe
from lethe.theorems.optimal_shift import OptimalShift

LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
BALL = {"kind": "ball", "radius": 0.2}
RIDGE = {"kind": "ridge", "strength": 0.4}


def _pair(steps: int, further: int, **changes: Any) -> tuple[lethe.Run, lethe.Run]:
    fields: dict[str, Any] = {"records": 20, "batches": batches("full", 10), "step_size": 0.5, "loss": LINEAR, "noise_multiplier": 4.0}
    run = make_run(**{**fields, **changes, "steps": steps})
    return run, run.replace(steps=further)


def _mu(run: lethe.Run, further: lethe.Run, removed: int = 1) -> float:
    return lethe.certify_unlearning(run, further, 1e-3, removed=removed).guarantee.mu


def _exact(run: lethe.Run, further: lethe.Run) -> float:
    """Linear losses and a ridge, all touches one way: the last noisy iterate is normal in both worlds."""
    apart = variance = last = 0.0
    for part, touched in ((run, 1.0), (further, 0.0)):
        for size, touch, noise in zip(part.step_sizes, part.sensitivities, part.noise_stds, strict=True):
            apart, variance = apart + touched * touch, variance + noise**2
            last = apart / math.sqrt(variance)
            shrunk = 1.0 / (1.0 + size * part.strong_convexity)
            apart, variance = apart * shrunk, variance * shrunk**2
    return last


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_or_remove"])
@pytest.mark.parametrize(("regulariser", "steps", "further"), [(None, 7, 5), (RIDGE, 1, 1), (RIDGE, 9, 1), (RIDGE, 6, 30)])
def test_linear_losses_are_exact(relation: str, regulariser: Any, steps: int, further: int) -> None:
    run, after = _pair(steps, further, regulariser=regulariser, neighbours=relation)
    after = after.replace(step_size=0.3, noise_multiplier=7.0)
    exact = _exact(run, after)
    assert exact <= _mu(run, after) <= exact * (1 + 1e-9)  # one per cent less would be false
    assert 3 * exact <= _mu(run, after, removed=3) <= 3 * exact * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled"])
def test_no_place_costs_more(design: str, seed: int) -> None:
    """Against non-negative least squares for every place, or every path of fresh orders; in a fixed order the worst is attained."""
    generator = np.random.default_rng(seed)
    slots, steps, further = 3, int(generator.integers(3, 8)), int(generator.integers(1, 4))
    loss = {"kind": "weakly_convex", "weak_convexity": 0.3, "smoothness": 1.0, "gradient_bound": 1.0}
    sizes, noises = generator.uniform(0.1, 1.0, steps), generator.uniform(2.0, 9.0, steps)
    run = make_run(
        records=12, batches=batches(design, 4), steps=steps, step_size=sizes.tolist(), noise_multiplier=noises.tolist(), loss=loss
    )
    after = run.replace(steps=further, step_size=0.4, noise_multiplier=3.0)
    factors = np.append(1 + 0.3 * sizes, [1.12] * further)
    noise = np.append(run.noise_stds, after.noise_stds)
    passes = -(-steps // slots)
    orders = itertools.product(range(slots), repeat=passes) if design == "shuffled" else ([place] * passes for place in range(slots))
    worst = 0.0
    for places in orders:
        touches = [run.sensitivities[t] * (t % slots == places[t // slots]) for t in range(steps)] + [0.0] * further
        worst = max(worst, brute_force_shift(factors, touches, noise))
    mu = _mu(run, after)
    assert worst * (1 - 1e-7) <= mu
    assert mu <= worst * (2.5 if design == "shuffled" else 1 + 1e-6)


def test_a_bounded_domain_forgets_whatever_was_learned() -> None:
    """From anywhere in the domain K steps cost D / (tau sqrt K), also of a loss of which nothing is known, and of any number of records."""
    unknown = {"kind": "unknown", "gradient_bound": 1.0}
    run, after = _pair(2000, 50, regulariser=BALL)
    expected = 0.4 / float(after.noise_stds[0]) / math.sqrt(50)
    assert _mu(run.replace(loss=unknown), after, removed=15) == pytest.approx(expected, rel=1e-9)
    assert _mu(run, after) <= expected * (1 + 1e-9)
    few, _ = _pair(2, 50, regulariser=BALL)
    assert _exact(few, after) <= _mu(few, after) <= _exact(few, after) * (1 + 1e-9) < expected


@pytest.mark.parametrize("ridge", [0.0, 3.0])
@pytest.mark.parametrize(("steps", "further"), [(1, 1), (6, 1), (30, 4), (60, 12)])
def test_never_below_the_exact_chain(ridge: float, steps: int, further: int) -> None:
    """A record pushes by +-s in training, and by nothing afterwards; on an interval, with a ridge around its middle."""
    run, after = _pair(steps, further, regulariser=[{"kind": "ridge", "strength": ridge}, BALL] if ridge else BALL, noise_multiplier=1.0)
    shrunk = 1.0 / (1.0 + 0.5 * ridge)
    chain = ProjectedChain(0.4 / shrunk, 0.2 / shrunk, nodes=300)

    def law(way: float) -> Floats:
        push = way * float(run.sensitivities[0]) / 2
        drifts = [[(1.0, push)]] * steps + [[(1.0, 0.0)]] * further
        noise = np.append(run.noise_stds, after.noise_stds)
        return chain.law(noise, drifts, lambda points: 0.2 / shrunk + shrunk * (points - 0.2 / shrunk))

    proved = lethe.certify_unlearning(run, after, 1e-3)
    assert proved.guarantee.epsilon(1e-4) + 1e-8 >= law_epsilon(law(1.0), law(-1.0), 1.2e-4)  # the bisection


def test_more_steps_forget_more() -> None:
    run, _ = _pair(40, 1, batches=batches("cyclic", 10), regulariser=[RIDGE, BALL])
    mus = [_mu(run, run.replace(steps=further)) for further in (1, 2, 5, 20, 100)]
    assert mu_of(OptimalShift(), run) >= mus[0]
    assert mus == sorted(mus, reverse=True)
    assert mus[-1] < 0.01 * mus[0]


def test_rounding_is_counted() -> None:
    run, after = _pair(40, 5)
    rounded = run.replace(precision={"dtype": "float32", "parameter_norm": 10.0})
    exact = _mu(run, after)
    assert exact * 1.00001 < _mu(rounded, after.replace(precision=rounded.precision)) < exact * 2
    assert _mu(rounded, after) < _mu(rounded, after.replace(precision=rounded.precision))


def test_the_answer_says_what_it_rests_on() -> None:
    run, after = _pair(9, 3)
    proved = lethe.certify_unlearning(run, after, 1e-3, removed=2)
    assert proved.epsilon == proved.guarantee.epsilon(1e-3)
    assert "unlearning of 2 records" in str(proved)
    assert [item.name for item in proved.findings].count("release") == 1
    assert _mu(run.replace(seeded=True), after) == _mu(run, after.replace(seeded=True)) == math.inf
    assert _mu(run, after.replace(noise_multiplier=0.0)) == pytest.approx(mu_of(OptimalShift(), run), rel=1e-12)  # they hide nothing


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "poisson": ({"batches": batches("poisson", 10)}, {}, "exact size"),
    "later poisson": ({}, {"batches": batches("poisson", 10)}, "of further vary"),
    "shown": ({}, {"release": "all"}, "only the last iterate"),
    "unknown": ({"loss": {"kind": "unknown", "gradient_bound": 1.0}}, {}, "smooth losses, or a bounded domain"),
    "later unknown": ({"regulariser": BALL}, {"loss": {"kind": "unknown", "gradient_bound": 1.0}}, "smooth"),
    "no noise": ({}, {"noise_multiplier": None}, "further: noise_multiplier is null"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    changes, later, message = REFUSED[name]
    run, after = _pair(5, 2, **changes)
    with pytest.raises(lethe.LetheError, match=message):
        lethe.certify_unlearning(run, after.replace(**later), 1e-3)


@pytest.mark.parametrize("removed", [0, 1.5, True])
def test_the_number_of_records_is_whole(removed: Any) -> None:
    with pytest.raises(lethe.InputError, match="removed"):
        lethe.certify_unlearning(*_pair(5, 2), 1e-3, removed=removed)

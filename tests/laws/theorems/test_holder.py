"""The optimal shift under Hölder gradients: against the smooth engine, brute force, the published bound and an exact chain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from how_many import by_night
from oracles import Floats, ProjectedChain, law_epsilon
from scipy.optimize import minimize

import lethe
from lethe.theorems.holder_shift import HolderShift
from lethe.theorems.shift.engine import solve


def _run(constant: float = 0.1, exponent: float = 0.5, radius: float = 0.05, **changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "batches": {"design": "full"},
        "loss": {"kind": "holder", "constant": constant, "exponent": exponent, "gradient_bound": 1.0},
        "regulariser": {"kind": "ball", "radius": radius},
        "noise_multiplier": 20.0,
        "passes": 100,
    }
    if "steps" in changes:
        fields.pop("passes")
    return make_run(**{**fields, **changes})


def _mu(run: lethe.Run) -> float:
    guarantee = HolderShift().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu


@pytest.mark.parametrize("constant", [0.02, 0.4, 3.0])
def test_at_exponent_one_it_is_the_engine_for_smooth_losses(constant: float) -> None:
    run = _run(constant=constant, exponent=1.0)
    expected = solve(np.full(100, 1 + 0.5 * constant), run.sensitivities, run.noise_stds, run.diameter).mu
    # The line z + 2 lambda G is lower only where 2 > H z, which on this domain is nowhere but for the flattest start.
    assert _mu(run) == pytest.approx(expected, rel=1e-9)


def _brute(run: lethe.Run, window: int) -> float:
    """The cheapest payments for the last few steps from the diameter, by sequential quadratic programming from many starts."""
    assert isinstance(run.loss, lethe.losses.Holder)
    constant, exponent, size = run.loss.constant, run.loss.exponent, float(run.step_sizes[0])
    touch, noise = float(run.sensitivities[0]), float(run.noise_stds[0])
    generator = np.random.default_rng(window)

    def payments(distances: Floats) -> Floats:
        before = np.concatenate(([run.diameter], distances))
        after = np.concatenate((distances, [0.0]))
        return before + size * constant * np.maximum(before, 0) ** exponent + touch - after

    best = math.inf
    for _ in range((12 if by_night() else 4) if window > 1 else 1):
        start = np.sort(generator.uniform(0, run.diameter, window - 1))[::-1]
        found = (
            minimize(
                lambda z: float(np.sum(payments(z) ** 2)),
                start,
                bounds=[(0.0, run.diameter)] * (window - 1),
                constraints={"type": "ineq", "fun": payments},
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-14},
            )
            if window > 1
            else None
        )
        paid = payments(found.x if found is not None else np.empty(0))
        if np.all(paid >= -1e-9):
            best = min(best, math.sqrt(float(np.sum(paid**2))) / noise)
    return best


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("constant", "exponent"), [(0.02, 0.5), (0.005, 0.3), (0.02, 0.8), (0.05, 0.6)])
def test_brute_force_over_windows(constant: float, exponent: float) -> None:
    run = _run(constant=constant, exponent=exponent, radius=0.004, steps=12)
    composition = math.sqrt(12) / float(run.relative_noise[0])
    expected = min(composition, *(_brute(run, window) for window in range(1, 9)))
    # Tangents lie above h, so it cannot be lower; it may be caught in a stationary point a little above.
    assert expected < 0.9 * composition
    assert expected * (1 - 1e-6) <= _mu(run) <= expected * 1.005


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("strength", "exponent"), [(0.2, 0.5), (1.0, 0.3), (0.5, 0.8)])
@pytest.mark.parametrize("steps", [1, 4, 25])
def test_never_below_the_exact_chain_of_an_expanding_loss(strength: float, exponent: float, steps: int) -> None:
    """f(x) = -k |x|^(1+p)/(1+p) around the middle of an interval: its gradient is Hölder with constant k 2^(1-p), and pushes outward."""
    diameter, size = 0.4, 0.1
    run = make_run(
        records=20,
        batches={"design": "full"},
        steps=steps,
        step_size=size,
        noise_multiplier=10.0,
        loss={
            "kind": "holder",
            "constant": strength * 2 ** (1 - exponent),
            "exponent": exponent,
            "gradient_bound": strength * (diameter / 2) ** exponent + 1.0,
        },
        regulariser={"kind": "ball", "radius": diameter / 2},
    )

    def step(points: Floats) -> Floats:
        from_middle = points - diameter / 2
        return points + size * strength * np.sign(from_middle) * np.abs(from_middle) ** exponent

    push = size * 1.0 / 20  # the record's own linear part, of slope 1 in one world and -1 in the other
    chain = ProjectedChain(diameter, diameter / 2, nodes=600)
    worlds = [chain.law(run.noise_stds, [[(1.0, way * push)]] * steps, step) for way in (1, -1)]
    assert lethe.guarantees.GDP(_mu(run)).epsilon(1e-5) >= law_epsilon(*worlds, 1.2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_never_below_the_exact_chain_with_a_ridge_and_changing_steps(seed: int) -> None:
    """As below, with a proximal ridge around the middle after each step, and step sizes and noise that change; the law is that of the
    iterate before the last projection, which the projection cannot make easier to tell apart."""
    generator = np.random.default_rng(seed)
    steps, diameter, exponent = 6, 0.4, float(generator.uniform(0.2, 0.9))
    sizes, strength, ridge = generator.uniform(0.02, 0.3, steps), float(generator.uniform(0.1, 1.5)), float(generator.uniform(0.5, 8.0))
    run = make_run(
        records=5,
        batches={"design": "full"},
        steps=steps,
        step_size=sizes.tolist(),
        noise_multiplier=generator.uniform(2.0, 9.0, steps).tolist(),
        loss={
            "kind": "holder",
            "constant": strength * 2 ** (1 - exponent),
            "exponent": exponent,
            "gradient_bound": strength * (diameter / 2) ** exponent + 1.0,
        },
        regulariser=[{"kind": "ridge", "strength": ridge}, {"kind": "ball", "radius": diameter / 2}],
    )
    middle = diameter / 2
    worlds: list[Floats] = []
    for way in (1, -1):
        # Only the proximal step of the step before acts on where a step begins: one chain a step, its law carried on.
        chain, law = ProjectedChain(diameter, middle, nodes=500), None
        for step, (size, noise) in enumerate(zip(sizes, run.noise_stds, strict=True)):
            before = 1.0 if step == 0 else 1.0 / (1.0 + sizes[step - 1] * ridge)

            def move(points: Floats, size: float = size, before: float = before) -> Floats:
                shrunk = before * (points - middle)
                return middle + shrunk + size * strength * np.sign(shrunk) * np.abs(shrunk) ** exponent

            law = chain.after(law, noise, [(1.0, way * size / 5)], move)
        assert law is not None
        worlds.append(law)
    # The chain is clipped before the proximal step, at D, which is inside D (1 + lambda kappa): a run the theorem covers too.
    assert lethe.guarantees.GDP(_mu(run)).epsilon(1e-5) >= law_epsilon(*worlds, 1.2e-5)

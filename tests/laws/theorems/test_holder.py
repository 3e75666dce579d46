"""Hölder gradients, the optimal shift: the smooth engine, brute force and exact chains, for touches at every step and once a pass."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, NEIGHBOURS, admits, batches, make_run
from how_many import by_night
from oracles import Floats, ProjectedChain, law_epsilon
from scipy.optimize import minimize
from theorem_bounds import mu_of

import lethe
from lethe.theorems.holder.path import HolderPath
from lethe.theorems.holder_shift import HolderShift, every_step_mu

BALL = {"kind": "ball", "radius": 0.05}
RIDGE = {"kind": "ridge", "strength": 0.4}


def _run(constant: float = 0.1, exponent: float = 0.5, radius: float = 0.05, **changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "loss": {"kind": "holder", "constant": constant, "exponent": exponent, "gradient_bound": 1.0},
        "regulariser": {"kind": "ball", "radius": radius},
        "noise_multiplier": 20.0,
    }
    return make_run(**{**fields, **changes})


def _guarantee(run: lethe.Run) -> Any:
    return HolderShift().bound(run).guarantee


@pytest.mark.sampled(12)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("relation", NEIGHBOURS)
@pytest.mark.parametrize(("regulariser", "clip_norm"), [(None, None), (None, 0.5), (BALL, None), (RIDGE, 0.5)])
def test_exponent_one_is_a_smooth_loss(design: str, relation: Any, regulariser: Any, clip_norm: float | None) -> None:
    if not admits(design, relation):
        pytest.skip("not a relation of this design")
    certificates = [
        lethe.certify(
            make_run(batches=batches(design, 10), neighbours=relation, regulariser=regulariser, loss=loss, clip_norm=clip_norm, passes=2),
            1e-3,
        )
        for loss in (
            {"kind": "holder", "constant": 0.3, "exponent": 1.0, "gradient_bound": 1.0},
            {"kind": "smooth", "smoothness": 0.3, "gradient_bound": 1.0},
        )
    ]
    holder, smooth = certificates
    assert (holder.epsilon, holder.theorem) == (smooth.epsilon, smooth.theorem)
    assert (holder.lipschitz and holder.lipschitz.constant) == (smooth.lipschitz and smooth.lipschitz.constant)
    assert [(other.theorem, other.epsilon) for other in holder.others] == [(other.theorem, other.epsilon) for other in smooth.others]


def _brute(run: lethe.Run, position: int, window: int) -> float:
    """The cheapest payments for the last `window` steps, from the diameter, or from 0 if they are all, by quadratic programming."""
    assert isinstance(run.loss, lethe.losses.Holder)
    constant, exponent, size = run.loss.constant, run.loss.exponent, float(run.step_sizes[0])
    noise, total = float(run.noise_stds[0]), run.total_steps
    start = run.diameter if window < total else 0.0
    touch = np.array([run.sensitivities[t] * (t % run.steps_per_pass == position) for t in range(total - window, total)])
    generator = np.random.default_rng(window)

    def payments(distances: Floats) -> Floats:
        before, after = np.concatenate(([start], distances)), np.concatenate((distances, [0.0]))
        return before + size * constant * np.maximum(before, 0) ** exponent + touch - after

    best = math.inf
    for _ in range((12 if by_night() else 4) if window > 1 else 1):
        first = np.sort(generator.uniform(0, run.diameter, window - 1))[::-1]
        paid = payments(np.empty(0))
        if window > 1:
            found = minimize(
                lambda z: float(np.sum(payments(z) ** 2)),
                first,
                bounds=[(0.0, run.diameter)] * (window - 1),
                constraints={"type": "ineq", "fun": payments},
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-15},
            )
            paid = payments(found.x)
        if np.all(paid >= -1e-9):
            best = min(best, math.sqrt(float(np.sum(paid**2))) / noise)
    return best


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("constant", "exponent", "radius"), [(0.002, 0.5, 0.3), (0.02, 0.5, 0.02), (0.01, 0.8, 0.05)])
def test_brute_force_over_positions(constant: float, exponent: float, radius: float) -> None:
    """Three batches a pass, three passes: no place is cheaper than its own optimum, and the worst is found to a few per cent."""
    run = _run(constant, exponent, radius, records=30, passes=3)
    exact = [min(_brute(run, position, window) for window in range(1, 10)) for position in range(3)]
    worst = _guarantee(run).mu
    assert max(exact) * (1 - 1e-6) <= worst <= max(exact) * 1.03
    assert worst < every_step_mu(HolderPath(run)) * 0.99  # before, every step counted as a touch
    mixed = _guarantee(run.replace(batches=lethe.batches.ShuffledOnce(10)))
    mus = mixed.mus if isinstance(mixed, lethe.guarantees.GDPMixture) else (mixed.mu,) * 3
    assert all(one * (1 - 1e-6) <= found <= one * 1.03 for one, found in zip(exact, mus, strict=True))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("strength", "exponent"), [(0.2, 0.5), (1.0, 0.3), (0.5, 0.8)])
@pytest.mark.parametrize(
    ("design", "slots", "passes"),
    [
        *((design, *lengths) for design in EXACT_SLOT_DESIGNS for lengths in ((3, 1), (3, 2), (2, 3))),
        *(("full", 1, steps) for steps in (1, 4, 25)),
    ],
)
def test_never_below_the_exact_chain_of_an_expanding_loss(strength: float, exponent: float, design: str, slots: int, passes: int) -> None:
    """The record adds a slope of +-1 to an outward loss at its own steps; both directions. Under one secret order the laws are the means
    over places, under fresh ones over all paths."""
    diameter, size = 0.4, 0.1
    run = make_run(
        records=4 * slots,
        batches=batches(design, 4),
        passes=passes,
        step_size=size,
        noise_multiplier=3.0,
        loss=_outward(strength, exponent, diameter),
        regulariser={"kind": "ball", "radius": diameter / 2},
    )
    chain = ProjectedChain(diameter, diameter / 2, nodes=120)
    push = size * 1.0 / 4

    def law(way: int, places: list[int]) -> Floats:
        drifts = [[(1.0, way * push * (t % slots == places[t // slots]))] for t in range(slots * passes)]
        return chain.law(run.noise_stds, drifts, lambda points: _moved(points - diameter / 2, size * strength, exponent) + diameter / 2)

    paths = [[place] * passes for place in range(slots)]
    if design == "shuffled":
        paths = [[int(digit) for digit in np.base_repr(k, slots).zfill(passes)] for k in range(slots**passes)]
    laws = [tuple(law(way, path) for way in (1, -1)) for path in paths]
    guarantee = _guarantee(run)
    if design in ("cyclic", "full"):
        assert all(guarantee.epsilon(1e-4) >= law_epsilon(*pair, 1.2e-4) for pair in laws)
    else:
        mean = [np.mean([pair[side] for pair in laws], axis=0) for side in (0, 1)]
        assert guarantee.epsilon(1e-4) >= law_epsilon(mean[0], mean[1], 1.2e-4)


def test_a_linear_loss_is_exact_and_catches_a_bound_one_per_cent_too_small() -> None:
    """Constant 0: the place in the last pass decides, and the run is Gaussian with the touches in one direction."""
    run = _run(constant=0.0, radius=1e6, passes=4)
    pooled = [lethe.certify(run.replace(loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}), 1e-3).epsilon]
    assert pooled[0] * (1 - 1e-9) <= _guarantee(run).epsilon(1e-3) <= pooled[0] * 1.005


def _outward(strength: float, exponent: float, diameter: float) -> dict[str, Any]:
    """-k |x|^(1+p)/(1+p) around the middle of an interval: its gradient is Hölder with constant k 2^(1-p), and pushes outward."""
    steepest = strength * (diameter / 2) ** exponent
    return {"kind": "holder", "constant": strength * 2 ** (1 - exponent), "exponent": exponent, "gradient_bound": steepest + 1.0}


def _moved(from_middle: Floats, strength: float, exponent: float) -> Floats:
    """A step on that loss of size 1, from the middle."""
    return from_middle + strength * np.sign(from_middle) * np.abs(from_middle) ** exponent


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("constant", "exponent"), [(0.02, 0.5), (0.005, 0.3), (0.02, 0.8), (0.05, 0.6)])
def test_brute_force_over_windows(constant: float, exponent: float) -> None:
    run = _run(constant, exponent, 0.004, batches={"design": "full"}, steps=12)
    composition = math.sqrt(12) / float(run.relative_noise[0])
    expected = min(composition, *(_brute(run, 0, window) for window in range(1, 9)))
    # Tangents lie above h, so it cannot be lower; it may be caught in a stationary point a little above.
    assert expected < 0.9 * composition
    assert expected * (1 - 1e-6) <= mu_of(HolderShift(), run) <= expected * 1.005


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
        loss=_outward(strength, exponent, diameter),
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
                return middle + _moved(before * (points - middle), size * strength, exponent)

            law = chain.after(law, noise, [(1.0, way * size / 5)], move)
        assert law is not None
        worlds.append(law)
    # The chain is clipped before the proximal step, at D, which is inside D (1 + lambda kappa): a run the theorem covers too.
    assert lethe.guarantees.GDP(mu_of(HolderShift(), run)).epsilon(1e-5) >= law_epsilon(*worlds, 1.2e-5)

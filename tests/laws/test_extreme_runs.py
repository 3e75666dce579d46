"""Random runs with numbers anywhere in the range of floats: no warning, no crash, no nan, and never less than what linear losses reveal."""

import math
from collections import defaultdict
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS
from helpers import batches as batches_of
from how_many import by_night
from scipy.special import ndtr

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.registry import ALL

EVERYDAY = (0.001, 0.5, 1.0, 2.0, 10.0)
ENDS = (5e-324, 1e-308, 0.1, 1.0, 1e308, 1.7e308)


def random_run(seed: int) -> lethe.Run | None:
    """Every second run has numbers from 1e-100 to 1e100, or at the very ends; None where the run itself is refused."""
    random = Random(seed)

    def number() -> float:
        kind = random.random()
        if seed % 2:
            return 10 ** random.uniform(-100, 100) if kind < 0.9 else random.choice(ENDS)
        return random.choice(EVERYDAY) if kind < 0.4 else 10 ** random.uniform(*((-20, 20) if kind < 0.7 else (-140, 140)))

    design, size, slots = random.choice(DESIGNS), random.choice((1, 1, 2, 5)), random.choice((1, 2, 3, 4, 7))
    slots = 1 if design == "full" else slots
    steps = random.choice((1, 2, 3, slots, 2 * slots, 3 * slots, 2 * slots + 1, 40))
    noise_at = random.choice(("every_step", "pass_ends"))
    entries = steps if noise_at == "every_step" else -(-steps // slots)
    fields: dict[str, Any] = {
        "records": size * slots + random.choice((0, 0, size - 1)),
        "batches": batches_of(design, size),
        "steps": steps,
        "step_size": number() if random.random() < 0.7 else [number() for _ in range(steps)],
        "clip_norm": number() if random.random() < 0.7 else None,
        "noise_at": noise_at,
        "noise_multiplier": number() if random.random() < 0.35 else [random.choice((0.0, number(), number())) for _ in range(entries)],
        "release": random.choice(("last", "last", "last", "all")),
        "neighbours": random.choice(("replace_one", "zero_out", *(("add_or_remove",) if design == "poisson" else ()))),
    }
    bound = {"gradient_bound": number()} if fields["clip_norm"] is None or random.random() < 0.4 else {}
    curved = number()
    fields["loss"] = random.choice(
        (
            {"kind": "convex", "smoothness": random.choice((0.0, curved)), **bound},
            {"kind": "smooth", "smoothness": curved, **bound},
            {"kind": "weakly_convex", "weak_convexity": number(), "smoothness": curved, **bound},
            {"kind": "strongly_convex", "strong_convexity": min(curved, number()), "smoothness": curved, **bound},
            {"kind": "holder", "constant": curved, "exponent": random.choice((0.01, 0.5, 0.9, 1.0)), **bound},
            {"kind": "holder", "constant": curved, "exponent": random.choice((0.0, 0.01, 0.5, 0.999)), "convex": True, **bound},
            {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": curved, **bound},
            {"kind": "unknown", **bound},
            {"kind": "logistic_regression", "feature_norm": curved},
        )
    )
    ball, ridge = {"kind": "ball", "radius": number()}, {"kind": "ridge", "strength": number()}
    fields["regulariser"] = random.choice((None, None, None, ball, ridge, [ridge, ball]))
    averaged = steps % slots == 0 and slots > 1 and noise_at == "pass_ends" and design in ("cyclic", "shuffled", "shuffled_once")
    if averaged and random.random() < 0.2:
        fields["pass_weights"] = [random.choice((0.0, number(), number())) for _ in range(slots)]
    try:
        return lethe.Run(**fields)
    except lethe.LetheError:
        return None


def least_delta(run: lethe.Run, epsilons: tuple[float, ...]) -> list[float]:
    """What linear losses reveal of an unregularised run, in one direction: the last iterate is a mixture of normals. Best of many tests.

    For runs whose loss may be linear, of batches without leftovers, and few enough ways to be touched.
    """
    top = float(run.noise_stds.max())
    spread = top * math.sqrt(float(np.sum((run.noise_stds / top) ** 2))) if top > 0 else 0.0
    with np.errstate(over="ignore"):
        moved = np.minimum(run.sensitivities / spread, 1e6) if spread > 0 else np.full(run.total_steps, 1e6)
    best = np.zeros(len(epsilons))
    for law in _touched(run, moved):
        places, weights = np.array(list(law)), np.array(list(law.values()))
        # One data set pushes by half of what differs, the other by as much the other way, or one by all and the other not at all.
        ways = ((places / 2, -places / 2),) if run.neighbours == "replace_one" else ((places, 0 * places),)
        for ours, others in ways:
            thresholds = np.concatenate([np.linspace(-8, 8, 33) + place for place in np.unique(np.concatenate((ours, others)))])
            one, other = (ndtr(place[:, None] - thresholds).T @ weights for place in (ours, others))
            best = np.maximum(best, [float(np.max(one - math.exp(epsilon) * other)) for epsilon in epsilons])
    return best.tolist()


def _touched(run: lethe.Run, moved: np.ndarray) -> list[dict[float, float]]:
    """Laws of the sum of touches: one for each place that is known, or one over what is secret."""
    steps, slots = moved.size, run.steps_per_pass
    if run.batches.design == "full":
        return [{float(moved.sum()): 1.0}]
    sums = [float(moved[j::slots].sum()) for j in range(slots)]
    if run.batches.design == "cyclic":
        return [{place: 1.0} for place in sums]
    law: dict[float, float] = defaultdict(float)
    if run.batches.design in ("shuffled_once", "balls_in_bins"):
        for place in sums:
            law[place] += 1.0 / slots
    elif run.batches.design == "shuffled":
        for places in product(range(slots), repeat=-(-steps // slots)):
            times = [e * slots + place for e, place in enumerate(places)]
            law[float(sum(moved[t] for t in times if t < steps))] += slots ** -len(places)
    else:
        chance = run.batch_size / run.records
        for drawn in product((0, 1), repeat=steps):
            law[float(moved @ np.array(drawn))] += math.prod(chance if one else 1.0 - chance for one in drawn)
    return [law]


def may_be_linear(run: lethe.Run) -> bool:
    """Whether `least_delta` holds for it, at little cost."""
    linear = run.loss.kind in ("convex", "smooth", "weakly_convex", "holder", "generalised_linear", "unknown")
    ways = {"shuffled": run.steps_per_pass ** -(-run.total_steps // run.steps_per_pass), "poisson": 2**run.total_steps}
    ways |= dict.fromkeys(("without_replacement", "cyclic_poisson"), ways["poisson"])
    exact = run.records == run.steps_per_pass * run.batch_size
    return linear and exact and run.regulariser is None and run.pass_weights is None and ways.get(run.batches.design, 1) <= 1024


DELTA = 1e-5
EPSILONS = (0.0, 1.0, 5.0)


def assert_sane(run: lethe.Run) -> None:
    """Of every theorem that applies; warnings are errors in all tests."""
    silent = run.noise_multipliers[-1] == 0
    truth = least_delta(run, EPSILONS) if may_be_linear(run) else [0.0] * len(EPSILONS)
    for theorem in ALL:
        findings = theorem.examine(run)
        if first_failure(findings) is not None:
            continue
        guarantee = theorem.bound(run, findings).guarantee
        epsilon = guarantee.epsilon(DELTA)
        where = theorem.name, run.to_document()
        assert epsilon >= 0.0, where
        deltas = [guarantee.delta(level) for level in EPSILONS]
        assert all(0.0 <= delta <= 1.0 for delta in deltas), where
        assert deltas == sorted(deltas, reverse=True), where
        assert guarantee.describe()
        if theorem.standing_on(run).usable:
            assert deltas[0] > 0.0, where
            assert epsilon == math.inf or not silent, where
            assert all(delta >= least * (1 - 1e-9) - 1e-12 for delta, least in zip(deltas, truth, strict=True)), where
    certificate = lethe.certify(run, DELTA)
    assert certificate.epsilon == math.inf or not silent


def test_extreme_runs_of_every_design() -> None:
    # These 150 seeds and those of the night find every theorem whose bound 900 runs would find to be one per cent too small.
    seeds = 150 if by_night() else 50
    runs = [run for seed in range(seeds) if (run := random_run(seed)) is not None]
    assert len(runs) > seeds // 2
    assert sum(may_be_linear(run) for run in runs) > seeds // 15
    for run in runs:
        assert_sane(run)


@pytest.mark.nightly(by_day="test_extreme_runs_of_every_design")
def test_many_extreme_runs() -> None:  # `make fuzz` goes on
    for seed in range(150, 600):
        if (run := random_run(seed)) is not None:
            assert_sane(run)

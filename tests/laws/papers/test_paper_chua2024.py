"""Chua et al. 2024 (arXiv:2403.17673): fixed batches, and what shuffled ones reveal at least."""

import math
import random

import numpy as np
import pytest
from helpers import make_run
from how_many import examples
from scipy import stats
from theorem_bounds import mu_of

import lethe
from lethe.calculus.guarantees import Profile
from lethe.theorems.base import Theorem
from lethe.theorems.literature.chua_2024 import Chua2024Fixed, Chua2024Shuffled, shuffled_delta
from lethe.theorems.registry import OURS


def _run(noise: float, slots: int, design: str, passes: int = 1) -> lethe.Run:
    fields = {"neighbours": "zero_out", "release": "all", "batches": {"design": design, "size": 10}}
    return make_run(**fields, records=10 * slots, passes=passes, noise_multiplier=noise)


def _epsilon(theorem: Theorem, run: lethe.Run, delta: float = 1e-5) -> float:
    return theorem.bound(run).guarantee.epsilon(delta)


# noise, slots, delta, eps of fixed batches, eps of shuffled ones from below: computed with the authors' code.
VECTORS = [
    (0.4, 10_000, 1e-6, 14.451, 14.450),
    (0.5, 1_000, 1e-5, 9.997, 9.997),
    (1.0, 1_000, 1e-5, 4.377, 2.882),
    (1.0, 100, 1e-5, 4.377, 4.063),
]


@pytest.mark.parametrize(("noise", "slots", "delta", "fixed", "shuffled"), VECTORS)
def test_the_authors_numbers(noise: float, slots: int, delta: float, fixed: float, shuffled: float) -> None:
    assert _epsilon(Chua2024Fixed(), _run(noise, slots, "cyclic"), delta) == pytest.approx(fixed, abs=6e-4)  # three decimals are printed
    for design in ("shuffled_once", "shuffled"):
        assert _epsilon(Chua2024Shuffled(), _run(noise, slots, design), delta) == pytest.approx(shuffled, abs=1e-3)


def test_fixed_batches_by_hand() -> None:
    """mu = sqrt(E) / z, and one touch more for the first batch where the last pass is cut short."""
    for steps, touches in ((50, 5), (51, 6), (7, 1)):
        run = make_run(steps=steps, neighbours="zero_out", noise_multiplier=2.0)
        assert mu_of(Chua2024Fixed(), run) == pytest.approx(math.sqrt(touches) / 2.0, rel=1e-14)
    assert mu_of(Chua2024Fixed(), make_run(noise_multiplier=4.0)) == pytest.approx(math.sqrt(5) / 2.0, rel=1e-14)


def test_fixed_batches_are_never_below_the_last_iterate_and_never_beat_certify() -> None:
    draw = random.Random(1)
    for _ in range(20):
        run = make_run(
            steps=draw.randint(1, 60),
            noise_multiplier=draw.uniform(0.5, 9.0),
            neighbours=draw.choice(["zero_out", "replace_one"]),
            release=draw.choice(["last", "all"]),
            batches=draw.choice([{"design": "full"}, {"design": "cyclic", "size": 10}]),
            loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0},
        )
        touches = -(-run.total_steps // run.steps_per_pass)
        exact = touches * run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))  # linear losses, one direction
        here = _epsilon(Chua2024Fixed(), run)
        assert here >= lethe.guarantees.GDP(exact).epsilon(1e-5) * (1 - 1e-12)
        assert lethe.certify(run, 1e-5).epsilon <= here * (1 + 1e-9)


def test_one_batch_a_pass_is_at_most_the_gaussian_mechanism() -> None:
    """With one slot the pair is N(2, z^2) against N(1, z^2), the event a half line: Balle & Wang, up to a grid of thresholds."""
    for epsilon in (0.0, 0.5, 3.0):
        exact = lethe.guarantees.GDP(1 / 1.5).delta(epsilon)
        assert exact * (1 - 1e-5) <= shuffled_delta(epsilon, 1.5, 1, 1, reshuffled=False) <= exact


@pytest.mark.parametrize(("passes", "reshuffled"), [(1, False), (3, False), (1, True), (3, True)])
def test_it_is_below_the_exact_divergence_of_the_mechanism(passes: int, reshuffled: bool) -> None:
    """Two slots: the mechanism itself, all outputs seen, on a grid of the likelihood ratio's Monte Carlo with its standard error.

    The record's batch is at 2 or 1, the other at 0; given the order all passes share, or a fresh one a pass, the density is a mixture.
    """
    noise, draws = 1.3, 400_000
    rng = np.random.default_rng(7)

    def log_density(seen: np.ndarray, shift: float) -> np.ndarray:
        by_order = np.stack([-((seen[..., slot] - shift) ** 2 + seen[..., 1 - slot] ** 2) / (2 * noise**2) for slot in (0, 1)])
        if reshuffled:
            return np.sum(np.logaddexp(by_order[0], by_order[1]) - math.log(2), axis=-1)
        return np.logaddexp(by_order[0].sum(axis=-1), by_order[1].sum(axis=-1)) - math.log(2)

    seen = noise * rng.standard_normal((draws, passes, 2))
    slots = rng.integers(0, 2, (draws, passes)) if reshuffled else np.repeat(rng.integers(0, 2, (draws, 1)), passes, axis=1)
    np.put_along_axis(seen, slots[..., None], np.take_along_axis(seen, slots[..., None], axis=2) + 2.0, axis=2)
    loss = log_density(seen, 2.0) - log_density(seen, 1.0)
    for epsilon in (0.2, 0.8, 1.5):
        gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
        exact, error = float(gains.mean()), float(gains.std() / math.sqrt(draws))
        assert 0.5 * exact <= shuffled_delta(epsilon, noise, 2, passes, reshuffled) <= exact + 4 * error  # and says something


def test_records_left_over_reveal_less() -> None:
    """By hand over thresholds: a record is in one of two batches with chance 20/25, and else in none."""
    thresholds, epsilon, tail = np.linspace(0.0, 5.0, 5001), 0.7, stats.norm.sf

    def exceeds(shift: float) -> np.ndarray:
        used = tail(thresholds - shift) + tail(thresholds) - tail(thresholds - shift) * tail(thresholds)
        unused = 2 * tail(thresholds) - tail(thresholds) ** 2
        return 0.8 * used + 0.2 * unused

    by_hand = float(np.max(exceeds(2) - math.exp(epsilon) * exceeds(1)))
    below = shuffled_delta(epsilon, 1.0, 2, 1, reshuffled=False, used=0.8)
    assert below == pytest.approx(by_hand, rel=1e-5)  # two grids
    assert below < shuffled_delta(epsilon, 1.0, 2, 1, reshuffled=False)
    run = _run(1.0, 2, "shuffled_once").replace(records=25)
    assert Chua2024Shuffled().bound(run).guarantee.delta(epsilon) == below


def test_several_passes() -> None:
    """One order: noise over sqrt(E). A fresh order a pass: more passes reveal more, and less than one order would."""
    once = [_epsilon(Chua2024Shuffled(), _run(1.0, 100, "shuffled_once", passes)) for passes in (1, 4, 16)]
    fresh = [_epsilon(Chua2024Shuffled(), _run(1.0, 100, "shuffled", passes)) for passes in (1, 4, 16)]
    assert once[1] == pytest.approx(_epsilon(Chua2024Shuffled(), _run(0.5, 100, "shuffled_once")), rel=1e-9)
    assert once[0] == pytest.approx(fresh[0], rel=1e-9)
    assert once[0] < fresh[1] < once[1]
    assert fresh[1] < fresh[2] < once[2]


def test_no_certificate_is_below_it() -> None:
    draw = random.Random(2)
    for _ in range(examples(40)):
        run = make_run(
            records=draw.randint(20, 400),
            batches={"design": draw.choice(["shuffled", "shuffled_once"]), "size": draw.randint(1, 15)},
            passes=draw.randint(1, 6),
            noise_multiplier=10 ** draw.uniform(-0.5, 1.0),
            neighbours="zero_out",
            release="all",
        )
        below = Chua2024Shuffled().bound(run).guarantee
        for delta in (1e-3, 1e-6):
            assert lethe.certify(run, delta, allow_large_delta=True).epsilon >= below.epsilon(delta)


def test_it_is_no_guarantee() -> None:
    theorem, run = Chua2024Shuffled(), _run(5.0, 10, "shuffled_once", passes=5)
    guarantee = theorem.bound(run).guarantee
    assert theorem.standing.soundness == "lower-bound"
    assert not theorem.standing_on(run).usable
    assert isinstance(guarantee, Profile)
    assert "LOWER" in guarantee.describe()
    assert guarantee.delta(math.inf) == 0.0
    assert lethe.certify(run, 1e-5, (theorem, *OURS)).theorem == "composition"

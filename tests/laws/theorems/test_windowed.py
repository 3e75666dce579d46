"""The last iterate under random batches in a ball: exact chains, what it generalises, and its recipe's noise levels and JSON."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from oracles import Floats, ProjectedChain, law_delta, law_epsilon
from scipy import stats

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.calculus.sampled.profiles import fixed_size_delta
from lethe.calculus.sampled.renyi import ORDERS, renyi_values
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.theorems.windowed import Windowed, shift_mus

LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}


def windowed_run(**changes: Any) -> lethe.Run:
    """200 records, batches of 20, a ball of radius .1, steps of .1: one touch moves by s = .005, and a pass by .05."""
    fields: dict[str, Any] = {
        "records": 200,
        "batches": {"design": "poisson", "size": 20},
        "steps": 300,
        "step_size": 0.1,
        "noise_multiplier": 4.0,
        "loss": LINEAR,
        "regulariser": {"kind": "ball", "radius": 0.1},
        "neighbours": "zero_out",
        "release": "last",
    }
    return lethe.Run(**{**fields, **changes})


def guarantee_of(run: lethe.Run) -> lethe.guarantees.Guarantee:
    return Windowed().bound(run).guarantee


def windowed_of(run: lethe.Run) -> WindowedGaussian:
    guarantee = guarantee_of(run)
    inner = guarantee.guarantee if isinstance(guarantee, WithSlack) else guarantee
    assert isinstance(inner, WindowedGaussian)
    return inner


def _chain(run: lethe.Run, drawn: float, missed: float, start: float = 0.0) -> Floats:
    """The law of the last iterate of one world in one dimension: the drift of a step when the record is drawn, and when it is not."""
    q = run.batch_size / run.records
    chain = ProjectedChain(run.diameter, start)
    return chain.law(run.noise_stds, [[(q, drawn), (1 - q, missed)]] * run.total_steps)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steps", [3, 20, 100])
@pytest.mark.parametrize("multiplier", [1.0, 4.0])
@pytest.mark.parametrize("start", [0.0, 0.1])
def test_never_below_the_exact_chain_with_poisson_batches(steps: int, multiplier: float, start: float) -> None:
    """Linear losses, all other gradients 0, zero out: the record pushes by s when it is drawn, towards the far end or back."""
    run = windowed_run(steps=steps, noise_multiplier=multiplier)
    touch = float(run.sensitivities[0])
    guarantee = guarantee_of(run)
    for push in (touch, -touch):
        touched, untouched = _chain(run, push, 0.0, start), _chain(run, 0.0, 0.0, start)
        for epsilon in (0.0, 0.05, 0.3, 1.0):
            assert guarantee.delta(epsilon) >= law_delta(touched, untouched, epsilon) - 2e-6  # the oracle's quadrature
        assert guarantee.epsilon(1e-5) >= law_epsilon(touched, untouched, 1.2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("background", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("steps", [1, 5, 60])
def test_never_below_the_exact_chain_without_replacement(background: float, steps: int) -> None:
    """Replace one, every other record with the same gradient: drawing the record replaces one of those by +1 or by -1."""
    run = windowed_run(batches={"design": "without_replacement", "size": 20}, neighbours="replace_one", steps=steps, noise_multiplier=6.0)
    unit = float(run.sensitivities[0]) / 2
    others = 20 * background * unit
    worlds = [_chain(run, others + (mine - background) * unit, others, start=0.1) for mine in (1.0, -1.0)]
    guarantee = guarantee_of(run)
    for epsilon in (0.0, 0.05, 0.3, 1.0):
        assert guarantee.delta(epsilon) >= law_delta(*worlds, epsilon) - 2e-6
    assert guarantee.epsilon(1e-5) >= law_epsilon(*worlds, 1.2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove", "replace_one"])
def test_never_below_the_exact_law_with_a_ridge(relation: str) -> None:
    """Unbounded, contracting by the ridge only: x_T is a sum of weighted coin flips plus a Gaussian, exact for a few steps."""
    run = windowed_run(regulariser={"kind": "ridge", "strength": 3.0}, neighbours=relation, steps=7, noise_multiplier=1.5)
    q, touch, factor = 0.1, 0.1 / 20, 1 / (1 + 0.1 * 3.0)
    powers = factor ** np.arange(7, 0, -1)
    noise = math.sqrt(float(np.sum((powers * run.noise_stds) ** 2)))
    grid = np.linspace(-14 * noise, 14 * noise, 40_001)

    def law(push: float) -> Floats:
        density = np.zeros(grid.size)
        for drawn in itertools.product((0, 1), repeat=7):
            chance = math.prod(q if one else 1 - q for one in drawn)
            density += chance * stats.norm.pdf(grid, push * float(powers @ np.array(drawn)), noise)
        return density * (grid[1] - grid[0])

    worlds = law(touch), law(-touch if relation == "replace_one" else 0.0)
    guarantee = guarantee_of(run)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        assert guarantee.delta(epsilon) >= law_delta(*worlds, epsilon) - 1e-7


@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
def test_one_step_windows_catch_a_bound_that_is_one_per_cent_too_small(design: str) -> None:
    """Runs pushed into opposite corners by an earlier, all but noiseless, step; then one step whose batches hardly ever hold the record:
    the two are exactly D apart, so mu = D / tau, and nothing smaller may be said."""
    run = windowed_run(
        records=10**9,
        batches={"design": design, "size": 20},
        steps=2,
        step_size=[100.0, 0.02],
        noise_multiplier=[1e-9, 100.0],
        neighbours="zero_out" if design == "poisson" else "replace_one",
    )
    mu = run.diameter / float(run.noise_stds[-1])
    exact = lethe.guarantees.GDP(mu).epsilon(1e-5)
    assert exact * (1 - 1e-9) <= guarantee_of(run).epsilon(1e-5) <= exact * 1.03  # a thousandth of the noise hides the draw


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(12))
def test_no_other_directions_of_the_gradients_are_worse(seed: int) -> None:
    """docs/theory.md, Lemma 6, by integration in the plane: contributions of norm at most 1 of the record, its neighbour and another (0 for
    Poisson batches, where the step lacks the record's), against the pairs that are accounted."""
    generator = np.random.default_rng(seed)
    probability, noise = float(generator.uniform(0.02, 0.9)), float(generator.uniform(0.5, 3.0))
    lengths = generator.choice([1.0, float(generator.uniform(0, 1))], 3)
    turns = generator.uniform(0, 2 * np.pi, 3)
    record, neighbour, other = (length * np.array([np.cos(turn), np.sin(turn)]) for length, turn in zip(lengths, turns, strict=True))
    axis = np.linspace(-9 * noise, 9 * noise, 500)
    cell = ((axis[1] - axis[0]) / noise) ** 2 / (2 * np.pi)

    def density(centre: Floats) -> Floats:
        squares = np.add.outer((axis - centre[0]) ** 2, (axis - centre[1]) ** 2)
        return np.exp(-0.5 * squares / noise**2) * cell

    def worst(missed: Floats, epsilon: float) -> float:
        worlds = [(1 - probability) * density(missed) + probability * density(drawn) for drawn in (record, neighbour)]
        return law_delta(worlds[0], worlds[1], epsilon)

    line = np.linspace(-9 * noise, 9 * noise, 20_001)
    step = (line[1] - line[0]) / noise / math.sqrt(2 * math.pi)
    drawn = [step * np.exp(-0.5 * ((line - way) / noise) ** 2) for way in (1, 0, -1)]
    pair = [(1 - probability) * drawn[1] + probability * drawn[side] for side in (0, 2)]
    for epsilon in (0.0, 0.1, 0.5, 1.5):
        assert worst(np.zeros(2), epsilon) <= law_delta(pair[0], pair[1], epsilon) + 1e-5  # both grids, where densities cross
        assert worst(other, epsilon) <= float(fixed_size_delta(probability, noise, epsilon)) + 1e-5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_the_minimum_over_windows_and_shares_by_brute_force(relation: Any) -> None:
    """The Renyi curve of the convex case, against Altschuler & Talwar's two terms on a fine grid of windows and shares."""
    run = windowed_run(neighbours=relation, regulariser={"kind": "ball", "radius": 0.02})
    curve = windowed_of(run).renyi_curve()
    shares, windows, orders = np.linspace(0.01, 0.99, 99), np.arange(1, 301), np.array(ORDERS)
    draw = renyi_values(0.1, np.sqrt(shares) * 4.0, relation, "poisson")
    shift = 0.5 * orders * (run.diameter / run.noise_stds[0]) ** 2
    brute = np.min(windows[:, None, None] * draw[None] + shift / (windows[:, None, None] * (1 - shares[None, :, None])), axis=(0, 1))
    brute = np.minimum(brute, 300 * renyi_values(0.1, np.array([4.0]), relation, "poisson")[0])
    values = np.array(curve.values)
    finite = np.isfinite(brute) & (orders < 60)
    # Both are grids; a replaced record's shares are fewer.
    assert np.all(values[finite] <= brute[finite] * (1 + (6e-3 if relation == "zero_out" else 2e-2)))
    assert np.all(values[finite] >= brute[finite] * (1 - 6e-3))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(20))
def test_the_cost_of_a_shift_against_the_sum_it_is(seed: int) -> None:
    generator = np.random.default_rng(seed)
    factors, noise = generator.uniform(0.7, 1.2, 60), generator.uniform(0.1, 2.0, 60)
    lengths = np.array([1, 2, 17, 60])
    distances = generator.uniform(0.0, 3.0, 4)
    found = shift_mus(factors, noise, distances, lengths)
    for length, distance, mu in zip(lengths, distances, found, strict=True):
        tail, left = factors[60 - length :], noise[60 - length :]
        weights = np.append(np.cumprod(tail[:0:-1])[::-1], 1.0)
        expected = distance * np.prod(tail) / math.sqrt(np.sum((weights * left) ** 2))
        assert expected <= mu <= expected * (1 + 1e-9)


def test_levels_are_only_ever_lowered() -> None:
    generator = np.random.default_rng(3)
    noise = generator.uniform(2.0, 6.0, 700)
    kept = windowed_of(windowed_run(steps=700, noise_multiplier=noise.tolist()))
    assert len(kept.noise) <= 256
    for length, row in zip((sum(row) for row in kept.counts), kept.counts, strict=True):
        lowered = np.repeat(kept.noise, row)
        assert np.all(np.sort(lowered) <= np.sort(noise[700 - length :]))


def test_noise_counts_in_units_of_one_record_s_gradient() -> None:
    """A clip norm of 2 on gradients of at most 1: the noise is twice as large against a record."""
    loose, plain = windowed_run(clip_norm=2.0, steps=3000), windowed_run(noise_multiplier=8.0, steps=3000)
    assert guarantee_of(loose).epsilon(1e-5) == pytest.approx(guarantee_of(plain).epsilon(1e-5), rel=1e-9)


def test_no_window_reaches_over_a_step_without_noise() -> None:
    run = windowed_run(steps=30, noise_multiplier=[4.0] * 19 + [0.0] + [4.0] * 10)
    lengths = [sum(row) for row in windowed_of(run).counts]
    assert max(lengths) == 10

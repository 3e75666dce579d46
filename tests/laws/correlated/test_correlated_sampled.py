"""Correlated noise on batches that chance draws, groups in turn or balls in bins: the theorems against the likelihood of whole runs."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from binned_oracles import two_bins
from doors import fit_linear
from numpy.typing import NDArray
from scipy import stats
from strategies import DELTA, adaptive_losses, contributions_of, correlated_run, random_triangular, strategy_of, worth_the_name

import lethe
from lethe.accounting.compare import sweep_values
from lethe.calculus.correlated.matrices import as_matrix
from lethe.calculus.correlated.sensitivity import band_count, column_norms
from lethe.errors import HypothesisError, LetheError
from lethe.noise_allocation.noise_shapes import correlated
from lethe.run.noise import LowerTriangular
from lethe.theorems.composition import GaussianComposition, spent_budgets
from lethe.theorems.correlated_noise import CorrelatedBinsTheorem, CorrelatedSampledTheorem, bins_apart
from lethe.theorems.literature.kaissis_2021 import Kaissis2021
from lethe.theorems.registry import ALL
from lethe.theorems.steps import largest_batch, record_chance
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.train.data.batches import Anchor, draw_from

Array = NDArray[np.float64]
TWO_BANDS = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.7]}
NOISES = [2.0, 1.0, 2.0, 1.5, 1.2, 3.0]
SAMPLED, BINS = CorrelatedSampledTheorem(), CorrelatedBinsTheorem()


def run_of(groups: int = 2, *, size: int = 5, **changes: Any) -> lethe.Run:
    fields = {"records": 40, "steps": 4, "noise_multiplier": 1.5, "neighbours": "zero_out", **changes}
    return correlated_run(**{"noise": TWO_BANDS, "batches": lethe.batches.CyclicPoisson(size, groups=groups), **fields})


def bins_of(slots: int = 4, **changes: Any) -> lethe.Run:
    return run_of(**{"records": 10 * slots, "batches": lethe.batches.BallsInBins(10), "steps": 2 * slots, **changes})


def worlds(run: lethe.Run, group: int = 0) -> tuple[Array, Array]:
    """How far a gradient that is 1 for ever moves y = C G + z, in its standard deviations: of all coins or bins, and how likely each is."""
    steps = run.total_steps
    if isinstance(run.batches, lethe.batches.BallsInBins):
        slots = run.steps_per_pass
        taken = np.array([contributions_of(slot, slots, steps, np.ones((steps, 1)))[:, 0] for slot in range(slots)])
        weights = np.full(slots, 1 / slots)
    else:
        groups = run.batches.groups_of_records
        own, chance = range(group, steps, groups), groups * run.batch_size / run.records
        coins = np.array(list(itertools.product((0, 1), repeat=len(own))))
        taken = np.zeros((len(coins), steps))
        taken[:, list(own)] = coins
        weights = np.prod(np.where(coins == 1, chance, 1 - chance), axis=1)
    return taken @ strategy_of(run).T / run.uncorrelated.noise_multipliers[0], weights


def divergence(run: lethe.Run, epsilon: float, *, backwards: bool, group: int = 0) -> tuple[float, float]:
    """The hockey-stick divergence of all that the run releases, and its standard error, from 200 000 draws."""
    random, (means, weights) = np.random.default_rng(7), worlds(run, group)
    others = -means if run.neighbours == "replace_one" else np.zeros_like(means)
    first, second = (others, means) if backwards else (means, others)
    seen = first[random.choice(len(weights), size=200_000, p=weights)] + random.normal(size=(200_000, run.total_steps))
    over, under = (np.exp(seen @ laws.T - 0.5 * np.square(laws).sum(axis=1)) @ weights for laws in (first, second))
    gains = np.maximum(1.0 - math.exp(epsilon) * under / over, 0.0)
    return float(gains.mean()), float(gains.std() / math.sqrt(gains.size))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_it_is_the_divergence_of_the_whole_run_where_gradients_never_change(relation: str) -> None:
    """Within 5 standard errors; the bound of 1 % more noise lies below the divergence itself, so that a bound that is too small is seen."""
    run = run_of(neighbours=relation)
    lucky, seen = run.replace(noise_multiplier=1.5 * 1.01), []
    for epsilon in (0.2, 0.5):
        claimed = SAMPLED.bound(run).guarantee.delta(epsilon)
        found = [divergence(run, epsilon, backwards=way) for way in (False, True)]
        assert max(value for value, _ in found) <= claimed + 5 * max(error for _, error in found)
        value, error = max(found)
        assert value == pytest.approx(claimed, abs=5 * error)
        seen.append(value - 3 * error > SAMPLED.bound(lucky).guarantee.delta(epsilon))
    assert any(seen)


def test_every_group_and_any_banded_matrix_is_covered(tmp_path: Path) -> None:
    """Columns of any length and sign, of three bands and three groups: no group's divergence is above the bound."""
    matrix = random_triangular(np.random.default_rng(3), 7, signed=True, bands=3)
    run = run_of(3, size=4, records=36, steps=7, noise=LowerTriangular.saved(matrix, tmp_path / "banded.npy"))
    claimed = SAMPLED.bound(run).guarantee.delta(0.3)
    for group in range(3):
        value, error = divergence(run, 0.3, backwards=False, group=group)
        assert value <= claimed + 5 * error


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_of_bins_it_is_the_divergence_for_whoever_knows_which_it_may_be(relation: str) -> None:
    """By quadrature, of the bins 0 and 2 of four; 1 % more noise is seen. And no more than that for whoever knows less."""
    run = bins_of(neighbours=relation)
    bound, lucky = (BINS.bound(run.replace(noise_multiplier=noise)).guarantee for noise in (1.5, 1.515))
    means = worlds(run)[0][[0, 2]]
    assert means[0] @ means[1] == 0.0
    first, second = (float(mu) for mu in np.linalg.norm(means, axis=1))
    ways: Any = ("replaced",) if relation == "replace_one" else ("P against Q", "Q against P")
    for epsilon in (0.3, 1.0):
        exact = max(two_bins(way, epsilon, (first, second)) for way in ways)
        assert exact <= bound.delta(epsilon) * (1 + 2e-5)  # quadrature
        assert exact == pytest.approx(bound.delta(epsilon), rel=1e-3)
        assert exact > lucky.delta(epsilon)
        for backwards in (False, True):
            value, error = divergence(run, epsilon, backwards=backwards)
            assert value <= bound.delta(epsilon) + 5 * error


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_that_answer_what_was_released_reach_no_more(tmp_path: Path, *, backwards: bool) -> None:
    """Entries of any sign, three bands, seven bins, of which the adversary knows that it is the first or the fourth."""
    matrix = random_triangular(np.random.default_rng(5), 14, signed=True, bands=3)
    run = bins_of(7, noise=LowerTriangular.saved(matrix, tmp_path / "banded.npy"), noise_multiplier=3.0)
    losses = adaptive_losses(matrix, 3.0, (0, 3), 7, backwards=backwards)
    for epsilon in (0.1, 0.5):
        worth_the_name(losses, epsilon, BINS.bound(run).guarantee.delta(epsilon), 0.1)


def test_no_turn_of_the_bins_costs_more_by_rank() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        slots = int(random.integers(2, 30))
        bins = int(random.integers(1, slots + 1))
        mus = random.choice([0.5, 1.0, 1.0, 2.0], size=int(random.integers(1, slots + 1)))
        levels, counts = bins_apart(mus, slots, bins)
        assert sum(counts) == bins
        assert len(set(levels)) == len(levels)
        by_rank = np.repeat(levels, counts)
        every = np.append(mus, np.zeros(slots - mus.size))
        places = np.arange(bins) * slots // bins
        assert np.diff(np.append(places, slots)).min() >= slots // bins
        for turn in range(slots):
            assert (np.sort(every[(places + turn) % slots])[::-1] <= by_rank).all()


def test_one_band_is_balls_in_bins_and_many_bands_get_no_credit() -> None:
    alone = bins_of(8, noise={"kind": "banded_toeplitz", "coefficients": [1.0]})
    independent = lethe.certify(alone.uncorrelated, DELTA)
    assert independent.theorem == "balls-in-bins"
    assert lethe.certify(alone, DELTA).epsilon == pytest.approx(independent.epsilon, rel=1e-9)
    few, many = bins_of(8), bins_of(3)
    known = few.replace(batches=lethe.batches.Cyclic(10))
    assert lethe.certify(few, DELTA).theorem == "correlated-bins"
    assert lethe.certify(few, DELTA).epsilon < lethe.certify(known, DELTA).epsilon
    assert lethe.certify(many, DELTA).theorem == "correlated-noise"
    assert BINS.bound(few.replace(noise_multiplier=0.0)).guarantee == lethe.guarantees.GDP(math.inf)
    with pytest.raises(HypothesisError, match="at most half as many bands as there are bins, 3; the strategy has 2"):
        BINS.bound(many)
    with pytest.raises(HypothesisError, match="batches are shuffled_once"):  # the other records say which place is left
        BINS.bound(few.replace(batches=lethe.batches.ShuffledOnce(10)))


def test_a_pass_that_the_run_does_not_end_has_bins_that_cost_nothing() -> None:
    certificate = lethe.certify(bins_of(8, steps=3), DELTA)
    assert certificate.theorem == "correlated-bins"
    assert certificate.epsilon < lethe.certify(bins_of(8, steps=8), DELTA).epsilon
    # Of two bins apart one at most is among three steps in a row that the run reaches.
    norm = math.sqrt(1.0 + 0.49) / 1.5
    assert bins_apart(np.array([norm, norm, 1.0 / 1.5]), 8, 2) == ((norm, 0.0), (1, 1))


def test_it_needs_a_secret_and_a_bound_on_each_gradient_by_itself() -> None:
    """A large term common to all records tells which of them a batch holds, and so the record's bin, or its coins."""
    for theorem, run in ((BINS, bins_of(8)), (SAMPLED, bins_of(8).replace(batches=lethe.batches.CyclicPoisson(10, groups=2)))):
        assert "secrecy" in {finding.name for finding in theorem.examine(run)}
        loss = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0}
        common = run.replace(loss=loss, clip_norm=None, regulariser={"kind": "ball", "radius": 100.0}, neighbours="replace_one")
        assert common.bounds_differences_only
        with pytest.raises(HypothesisError, match="it needs a bound on each record's gradient"):
            theorem.bound(common)


def test_its_ends_are_poisson_sampling_and_the_fixed_order() -> None:
    """One group and one band: Poisson DP-SGD. As many groups as a pass has steps, all of one size: no draw is left to chance."""
    one = run_of(1, steps=20, noise=None)
    poisson = one.replace(batches=lethe.batches.Poisson(5))
    assert lethe.certify(one, DELTA).epsilon == lethe.certify(poisson, DELTA).epsilon
    every = run_of(8, steps=24)
    fixed = every.replace(batches=lethe.batches.Cyclic(5))
    assert lethe.certify(every, DELTA).epsilon == pytest.approx(lethe.certify(fixed, DELTA).epsilon, rel=1e-9)
    assert lethe.certify(fixed, DELTA).theorem == "correlated-noise"


def test_more_bands_than_groups_get_no_credit() -> None:
    wide = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.7, 0.2]}
    run = run_of(2, noise=wide, steps=20)
    certificate = lethe.certify(run, DELTA)
    assert certificate.theorem == "correlated-noise"
    with pytest.raises(HypothesisError, match="as many bands as there are groups of records, 2; the strategy has 3"):
        SAMPLED.bound(run)
    # As if each draw of the group took the record, which is the fixed order of two slots.
    fixed = run.replace(records=10, batches=lethe.batches.Cyclic(5))
    assert certificate.epsilon == lethe.certify(fixed, DELTA).epsilon
    credit = lethe.certify(run_of(4, noise=wide, steps=20), DELTA)
    assert (credit.theorem, credit.epsilon < certificate.epsilon) == ("correlated-sampled", True)


def test_of_each_turn_the_step_with_the_least_noise_counts_and_each_group_has_its_account() -> None:
    """Independent noise that differs between the groups: never below what either group costs by itself, as a Poisson run of its steps."""
    run = run_of(2, noise=None, steps=6, noise_multiplier=NOISES)
    bound = lethe.certify(run, DELTA).epsilon

    def poisson(noises: list[float]) -> float:
        return lethe.certify(run.replace(batches=lethe.batches.Poisson(10), steps=3, noise_multiplier=noises), DELTA).epsilon

    assert max(poisson(NOISES[group::2]) for group in range(2)) <= bound == pytest.approx(poisson([1.0, 1.5, 1.2]), rel=1e-9)
    # Without credit: the steps of the worst group.
    spent = [sum(0.5 / noise**2 for noise in NOISES[group::2]) for group in range(2)]
    assert spent_budgets(run) == pytest.approx(spent, rel=1e-12)
    for theorem in (GaussianComposition(), Kaissis2021()):
        without = theorem.bound(run).guarantee.epsilon(DELTA)
        assert without == pytest.approx(lethe.guarantees.GDP(math.sqrt(2 * max(spent))).epsilon(DELTA), rel=1e-9)


def test_only_theorems_that_know_groups_say_anything() -> None:
    knowing = {"composition", "kaissis-2021", "budget-filter", "sampled-gaussian", "correlated-noise", "correlated-sampled"}
    for release in ("all", "last"):
        for run in (run_of(release=release), run_of(release=release, noise=None)):
            smooth = run.replace(loss=lethe.losses.Softmax(feature_norm=1.0))
            for theorem in ALL:
                if theorem.name not in knowing:
                    with pytest.raises(HypothesisError, match=r"cyclic_poisson|noise|nothing|needs"):
                        theorem.bound(smooth)


def test_norms_and_bands_are_those_of_the_matrix() -> None:
    random = np.random.default_rng(0)
    matrix = random_triangular(random, 9, signed=True)
    for given in (matrix, np.array([1.0, 0.0, 0.5, 0.0, 0.0]), np.array([2.0])):
        whole = as_matrix(given)
        norms = np.linalg.norm(whole, axis=0)
        assert (column_norms(given) >= norms).all()
        assert column_norms(given) == pytest.approx(norms, rel=1e-12)
        below = [whole[row, column] for row in range(len(whole)) for column in range(row + 1) if row - column >= band_count(given)]
        assert not np.any(below)
        assert np.diagonal(whole, -(band_count(given) - 1)).any()


def test_a_planner_s_largest_batch_is_not_below_the_law_of_a_group() -> None:
    run = run_of(4, size=50, records=1000, noise=None)
    assert record_chance(run) == (0.2, 4)
    most, slack = largest_batch(run)
    assert stats.binom.sf(most, 250, 0.2) * run.total_steps <= slack


def test_a_step_draws_from_its_group_alone_each_record_with_the_stated_chance() -> None:
    """And from any step on, as a training that was killed goes on: 8 steps a pass, 4 groups, and the last pass cut."""
    run, every = run_of(4, records=42, steps=4000, noise=None), torch.arange(42)
    counts = np.zeros(42)
    for step, batch in enumerate(draw_batches(run, torch.Generator().manual_seed(0))):
        assert (every[batch] % 4 == step % 4).all()
        counts[every[batch].numpy()] += 1
    chance = 4 * 5 / 42
    assert np.abs(counts - 1000 * chance).max() < 6 * math.sqrt(1000 * chance * (1 - chance))
    short, generator = run.replace(steps=21), torch.Generator().manual_seed(0)
    whole = list(draw_from(short, generator, Anchor(step=0, state=generator.get_state()), 0))
    for done in range(21):
        later = list(draw_from(short, torch.Generator(), whole[done][2], done))
        assert [step for step, _, _ in later] == list(range(done + 1, 22))
        assert all(torch.equal(every[one[1]], every[before[1]]) for one, before in zip(later, whole[done:], strict=True))


def test_training_keeps_to_it_and_is_certified_as_it() -> None:
    features = np.random.default_rng(0).normal(size=(40, 3))
    run = lethe.correlate(run_of(2, steps=24, noise=None), bands=2).replace(loss=lethe.losses.Softmax(feature_norm=1.0))
    fitted = fit_linear(run, features, (features[:, 0] > 0).astype(int), classes=2)
    assert fitted.run.noise == run.noise
    certificate = lethe.certify(fitted, delta=DELTA)
    assert (certificate.theorem, certificate.epsilon) == ("correlated-sampled", lethe.certify(run, DELTA).epsilon)
    plain = run_of(2, noise=None)
    recorder = Recorder(plain, seeded=False)
    for batch in (torch.tensor([0, 2]), torch.tensor([1, 2])):  # of another group
        recorder.note(step_size=0.5, noise_std=1.0, batch=batch)
    with pytest.raises(LetheError, match="the batch of step 2 is not of the design cyclic_poisson"):
        recorder.run(plain, enforced=False)


def test_a_planner_takes_a_strategy_that_is_amplified() -> None:
    """Of more groups than 64 too, for which a buffered strategy, of all bands, would be searched in a fixed order."""
    for groups, steps in ((2, 40), (80, 160)):
        run = run_of(groups, size=1, records=800, steps=steps, noise=None)
        found = correlated(run, lethe.schedules.Influence(rate=1.0))
        assert lethe.certify(found, DELTA).theorem == "correlated-sampled"


def test_a_sweep_over_batch_sizes_keeps_to_those_that_the_groups_divide() -> None:
    run = run_of(5, records=1000, size=20, steps=100, noise=None)
    sizes = sweep_values(run, "batch_size", DELTA, None)
    assert len(sizes) > 5
    assert 20 in sizes
    assert all(1000 // int(size) % 5 == 0 for size in sizes)
    few = run_of(4, records=14, size=3, steps=4, noise=None)
    assert sweep_values(few, "batch_size", DELTA, None) == (3,)

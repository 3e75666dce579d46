"""Correlated noise on cyclic Poisson batches: the theorem against the likelihood of whole runs, and trainings that keep to it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import make_run
from numpy.typing import NDArray
from scipy import stats
from strategies import random_triangular

import lethe
from lethe.accounting.compare import sweep_values
from lethe.calculus.correlated.matrices import as_matrix
from lethe.calculus.correlated.sensitivity import band_count, column_norms
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.noise_allocation.noise_shapes import correlated
from lethe.run.batches import Batches
from lethe.run.noise import LowerTriangular
from lethe.run.participation import BatchSizes, Participation
from lethe.theorems.composition import GaussianComposition, spent_budgets
from lethe.theorems.correlated_noise import CorrelatedSampledTheorem
from lethe.theorems.literature.kaissis_2021 import Kaissis2021
from lethe.theorems.registry import ALL
from lethe.theorems.steps import largest_batch, record_chance
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.train.data.batches import Anchor, draw_from

Array = NDArray[np.float64]
DELTA = 1e-5
TWO_BANDS = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.7]}


def run_of(groups: int = 2, *, size: int = 5, records: int = 40, **changes: Any) -> lethe.Run:
    fields = {"noise": TWO_BANDS, "steps": 4, "noise_multiplier": 1.5, "neighbours": "zero_out", "release": "all", **changes}
    return make_run(
        records=records,
        batches=lethe.batches.CyclicPoisson(size, groups=groups),
        loss={"kind": "unknown"},
        clip_norm=1.0,
        passes=None,
        **fields,
    )


def likelihoods(run: lethe.Run, group: int, present: Array, absent: Array, seen: Array) -> tuple[Array, Array]:
    """Of y = C G + z at the points `seen`, shape (draws, T), with the record and with the other in its place: all coins are gone through.

    Args:
        present, absent: the record's gradient at each step, and that of what stands in its place, shape (T,); one dimension.
    """
    assert run.noise is not None
    strategy = as_matrix(run.noise.strategy(run.total_steps))
    chance = run.batches.groups_of_records * run.batch_size / run.records
    noise = run.uncorrelated.noise_multipliers[0]
    own = range(group, run.total_steps, run.batches.groups_of_records)
    found = np.zeros((2, len(seen)))
    for coins in itertools.product((0, 1), repeat=len(own)):
        took = np.zeros(run.total_steps)
        took[list(own)] = coins
        weight = chance ** sum(coins) * (1 - chance) ** (len(coins) - sum(coins))
        for row, gradients in enumerate((present, absent)):
            found[row] += weight * np.exp(-np.square(seen - strategy @ (took * gradients)).sum(axis=1) / (2 * noise**2))
    return found[0], found[1]


def drawn(run: lethe.Run, group: int, gradients: Array, count: int, seed: int) -> Array:
    """What a run releases, as often as asked for: coins by its own sampling, noise on C G."""
    assert run.noise is not None
    random, steps = np.random.default_rng(seed), run.total_steps
    chance = run.batches.groups_of_records * run.batch_size / run.records
    took = np.zeros((count, steps))
    took[:, group :: run.batches.groups_of_records] = random.random(took[:, group :: run.batches.groups_of_records].shape) < chance
    strategy = as_matrix(run.noise.strategy(steps))
    return (took * gradients) @ strategy.T + run.uncorrelated.noise_multipliers[0] * random.normal(size=(count, steps))


def divergence(run: lethe.Run, group: int, epsilon: float, *, replaced: bool, backwards: bool) -> tuple[float, float]:
    """The hockey-stick divergence of the run's outputs, and its standard error, from 400 000 draws."""
    ones = np.ones(run.total_steps)
    present, absent = ones, -ones if replaced else 0.0 * ones
    if backwards:
        present, absent = absent, present
    seen = drawn(run, group, present, 400_000, seed=7)
    with_record, without = likelihoods(run, group, present, absent, seen)
    gains = np.maximum(1.0 - math.exp(epsilon) * without / with_record, 0.0)
    return float(gains.mean()), float(gains.std() / math.sqrt(gains.size))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_it_is_the_divergence_of_the_whole_run_where_gradients_never_change(relation: str) -> None:
    """Within 5 standard errors; the bound of 1 % more noise lies below the divergence itself, so that a bound that is too small is seen."""
    run = run_of(neighbours=relation)
    lucky = run.replace(noise_multiplier=1.5 * 1.01)
    seen = []
    for epsilon in (0.2, 0.5):
        claimed = CorrelatedSampledTheorem().bound(run).guarantee.delta(epsilon)
        found = [divergence(run, 0, epsilon, replaced=relation == "replace_one", backwards=way) for way in (False, True)]
        assert max(value for value, _ in found) <= claimed + 5 * max(error for _, error in found)
        value, error = max(found)
        assert value == pytest.approx(claimed, abs=5 * error)
        seen.append(value - 3 * error > CorrelatedSampledTheorem().bound(lucky).guarantee.delta(epsilon))
    assert any(seen)


def test_every_group_and_any_banded_matrix_is_covered(tmp_path: Path) -> None:
    """Columns of any length and sign, of three bands and three groups: no group's divergence is above the bound."""
    matrix = random_triangular(np.random.default_rng(3), 7, signed=True)
    matrix[np.subtract.outer(np.arange(7), np.arange(7)) > 2] = 0.0
    run = run_of(3, size=4, records=36, steps=7, noise=LowerTriangular.saved(matrix, tmp_path / "banded.npy"))
    claimed = CorrelatedSampledTheorem().bound(run).guarantee.delta(0.3)
    for group in range(3):
        value, error = divergence(run, group, 0.3, replaced=False, backwards=False)
        assert value <= claimed + 5 * error


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
        CorrelatedSampledTheorem().bound(run)
    # As if each draw of the group took the record, which is the fixed order of two slots.
    fixed = run.replace(records=10, batches=lethe.batches.Cyclic(5))
    assert certificate.epsilon == lethe.certify(fixed, DELTA).epsilon
    credit = lethe.certify(run_of(4, noise=wide, steps=20), DELTA)
    assert (credit.theorem, credit.epsilon < certificate.epsilon) == ("correlated-sampled", True)


def test_of_each_turn_the_step_with_the_least_noise_counts() -> None:
    """Independent noise that differs between the groups: never below what either group costs by itself, as a Poisson run of its steps."""
    noises = [2.0, 1.0, 2.0, 1.5, 1.2, 3.0]
    run = run_of(2, noise=None, steps=6, noise_multiplier=noises)
    bound = lethe.certify(run, DELTA).epsilon
    for group in range(2):
        alone = run.replace(batches=lethe.batches.Poisson(10), steps=3, noise_multiplier=noises[group::2])
        assert lethe.certify(alone, DELTA).epsilon <= bound
    worst = run.replace(batches=lethe.batches.Poisson(10), steps=3, noise_multiplier=[1.0, 1.5, 1.2])
    assert bound == pytest.approx(lethe.certify(worst, DELTA).epsilon, rel=1e-9)
    # Without credit: the steps of the worst group.
    for theorem in (GaussianComposition(), Kaissis2021()):
        without = theorem.bound(run).guarantee.epsilon(DELTA)
        assert without == pytest.approx(lethe.guarantees.GDP(math.sqrt(1.0 + 1 / 1.5**2 + 1 / 9)).epsilon(DELTA), rel=1e-9)


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


def test_a_budget_filter_keeps_an_account_for_each_group() -> None:
    run = run_of(2, noise=None, steps=6, noise_multiplier=[2.0, 1.0, 2.0, 1.5, 1.2, 3.0])
    wanted = [1 / 2**2 + 1 / 2**2 + 1 / 1.2**2, 1.0 + 1 / 1.5**2 + 1 / 3**2]
    assert spent_budgets(run) == pytest.approx([0.5 * cost for cost in wanted], rel=1e-12)


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"groups_of_records": None}, "must say how many groups_of_records"),
        ({"sizes": BatchSizes.EXACT}, "its sizes are binomial"),
        # A design that draws from all records and states groups besides would be certified with one step in so many.
        (
            {"participation": Participation.INDEPENDENT_DRAW},
            "says groups_of_records; with the participation an independent draw there is one",
        ),
    ],
)
def test_a_design_in_groups_that_leaves_out_what_a_theorem_needs_is_refused(facts: dict[str, Any], match: str) -> None:
    stated: dict[str, Any] = {name: vars(lethe.batches.CyclicPoisson)[name] for name in ("participation", "sizes", "secret", "neighbours")}
    stated["groups_of_records"] = property(lambda batches: 2)
    made = {name: value for name, value in {**stated, **facts, "design": "made_up"}.items() if value is not None}
    hints = dict.fromkeys((name for name in made if name != "groups_of_records"), ClassVar[Any])
    with pytest.raises(InputError, match=match):
        type("MadeUpGroups", (Batches,), {**made, "__module__": __name__, "__annotations__": hints})


def test_a_planner_s_largest_batch_is_not_below_the_law_of_a_group() -> None:
    run = run_of(4, size=50, records=1000, noise=None)
    assert record_chance(run) == (0.2, 4)
    most, slack = largest_batch(run)
    assert stats.binom.sf(most, 250, 0.2) * run.total_steps <= slack


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": 3},
        {"groups": 16},
        {"groups": 0},
        {"groups": 2.5},
        {"groups": math.nan},
        {"groups": None},
        {"neighbours": "add_or_remove"},
    ],
)
def test_what_the_design_cannot_do_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"groups|neighbours"):
        run_of(**changes)


def test_a_step_draws_from_its_group_alone_each_record_with_the_stated_chance() -> None:
    run = run_of(4, size=5, records=42, steps=4000, noise=None)
    counts = np.zeros(42)
    for step, batch in enumerate(draw_batches(run, torch.Generator().manual_seed(0))):
        taken = torch.arange(42)[batch].numpy()
        assert (taken % 4 == step % 4).all()
        counts[taken] += 1
    chance = 4 * 5 / 42
    assert np.abs(counts - 1000 * chance).max() < 6 * math.sqrt(1000 * chance * (1 - chance))


def test_training_keeps_to_it_and_is_certified_as_it() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 3))
    run = lethe.correlate(run_of(2, steps=24, noise=None), bands=2).replace(loss=lethe.losses.Softmax(feature_norm=1.0))
    fitted = fit_linear(run, features, (features[:, 0] > 0).astype(int), classes=2)
    assert fitted.run.noise == run.noise
    certificate = lethe.certify(fitted, delta=DELTA)
    assert (certificate.theorem, certificate.epsilon) == ("correlated-sampled", lethe.certify(run, DELTA).epsilon)


def test_a_batch_of_another_group_is_not_recorded_as_the_design() -> None:
    run = run_of(2, noise=None)
    recorder = Recorder(run, seeded=False)
    for batch in (torch.tensor([0, 2]), torch.tensor([1, 2])):
        recorder.note(step_size=0.5, noise_std=1.0, batch=batch)
    with pytest.raises(LetheError, match="the batch of step 2 is not of the design cyclic_poisson"):
        recorder.run(run, enforced=False)


def test_batches_from_any_step_on_are_those_of_the_groups_in_turn() -> None:
    """As a training that was killed goes on: 8 steps a pass, 4 groups, and the last pass cut."""
    run = run_of(4, records=42, steps=21, noise=None)
    generator = torch.Generator().manual_seed(0)
    start = Anchor(step=0, state=generator.get_state())
    whole = list(draw_from(run, generator, start, 0))
    for done in range(21):
        later = list(draw_from(run, torch.Generator(), whole[done][2], done))
        assert [step for step, _, _ in later] == list(range(done + 1, 22))
        for (step, batch, _), (_, before, _) in zip(later, whole[done:], strict=True):
            taken = torch.arange(42)[batch]
            assert torch.equal(taken, torch.arange(42)[before])
            assert (taken % 4 == (step - 1) % 4).all()


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

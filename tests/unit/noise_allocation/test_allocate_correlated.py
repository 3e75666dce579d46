"""Correlated noise, pass ends and other batches as candidates: one unit, the best that the run allows, and words on the rest."""

import numpy as np
import pytest
from helpers import batches, make_run
from scipy import linalg

import lethe
from lethe.calculus.correlated.sensitivity import output_square, sensitivity
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.candidates import other_designs
from lethe.noise_allocation.noise_shapes import correlated, harm_of, shaped
from lethe.run.schedules import Influence

CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
UNKNOWN = {"loss": {"kind": "unknown"}, "clip_norm": 1.0, "noise_multiplier": None, "neighbours": "zero_out"}
FLAT = Influence(rate=1.0, basis="assumed")


def _cyclic(**changes):
    return make_run(**({"records": 200, "batches": batches("cyclic", 20), "passes": 5, **UNKNOWN} | changes))


def test_the_output_square_is_that_of_the_inverse() -> None:
    random = np.random.default_rng(0)
    for steps in (1, 2, 7):
        dense = np.tril(random.normal(size=(steps, steps))) + 3.0 * np.eye(steps)
        column = np.append(1.0, random.uniform(size=steps - 1) / 4)
        weights = random.uniform(size=steps)
        for strategy, matrix in ((dense, dense), (column, np.tril(linalg.toeplitz(column)))):
            assert output_square(strategy, weights) == pytest.approx(np.sum((weights @ np.linalg.inv(matrix)) ** 2), rel=1e-12)


def test_harm_is_the_variance_of_the_last_model() -> None:
    """Drawn, not computed: the noise of all steps, summed, of a run with steps of two sizes."""
    run = lethe.correlate(_cyclic()).replace(step_size=[2.0] * 25 + [1.0] * 25, noise_multiplier=3.0)
    random, sums = np.random.default_rng(1), np.zeros(20_000)
    stream = run.noise.stream()
    for size in run.step_sizes:
        sums += size * stream.next(random.normal(size=20_000))
    assert harm_of(run, FLAT) == pytest.approx(sums.var() * (3.0 / 20) ** 2, rel=0.05)  # 5 standard errors of a variance


@pytest.mark.slow
def test_where_all_is_released_correlated_noise_is_taken_and_is_what_correlate_and_plan_give() -> None:
    run = _cyclic(release="all")
    found = allocate(run, 1.0, 1e-5)
    assert found.chosen.shape == "correlated"
    assert found.run == lethe.plan(lethe.correlate(run), 1.0, 1e-5)
    assert found.certificate.epsilon <= 1.0
    assert lethe.certify(found.run.with_noise_scaled(1 - 1e-4), 1e-5).epsilon > 1.0
    by_name = {one.shape: one for one in found.candidates}
    assert by_name["uniform"].harm > 2.0 * found.chosen.harm
    assert by_name["uniform"].noise == pytest.approx(float(np.linalg.norm(by_name["uniform"].run.noise_stds)))
    assert "would be shown without noise" in by_name["pass_ends"].why
    assert "every iterate pays for itself" in by_name["joint"].why
    assert all(one.words in found.explain() or one.why in found.explain() for one in found.candidates)
    table = found.to_dict()["candidates"]
    assert [row["noise"] is None for row in table] == [one.run is None for one in found.candidates]


@pytest.mark.slow
def test_no_correlation_leaves_less_noise_in_the_last_iterate_than_the_joint_schedule() -> None:
    """Full batches that contract by f: joint attains s (1 + f + f^2 + ...) / mu, and with all iterates certified nothing is below that."""
    steps, rate = 12, 0.9
    loss = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 1.0, "gradient_bound": 1.0}
    run = make_run(records=10, batches=lethe.batches.Full(), steps=steps, passes=None, step_size=1.0, loss=loss, noise_multiplier=None)
    run = run.replace(precision=lethe.Precision(dtype="float64", parameter_norm=1.0))  # no noise is kept in reserve for its rounding
    fading = Influence(rate=rate**2, basis="assumed")
    found = allocate(run, target=lethe.guarantees.GDP(1.0), schedule="joint", influence=fading)
    least = float(run.sensitivities[0]) * sum(rate**back for back in range(steps))
    assert found.chosen.noise == pytest.approx(least, rel=1e-9)
    random = np.random.default_rng(0)
    for _ in range(50):
        column = np.append(1.0, random.uniform(size=steps - 1) * random.uniform())
        kept = output_square(column, rate ** np.arange(steps)[::-1])
        assert run.sensitivities[0] * sensitivity(column, 1) * np.sqrt(kept) >= least * (1 - 1e-12)


def test_it_says_that_the_last_iterate_alone_costs_as_much() -> None:
    last, every = (allocate(_cyclic(release=release), 1.0, 1e-5, schedule="correlated") for release in ("last", "all"))
    assert last.run.noise_multiplier == every.run.noise_multiplier
    assert any("release: all costs no more" in note for note in last.notes)
    assert not any("release: all" in note for note in every.notes)


@pytest.mark.slow
def test_of_balls_in_bins_fewer_bands_are_tried_which_a_secret_bin_hides_better() -> None:
    run = _cyclic(release="all", records=1000, batches=batches("balls_in_bins", 20), passes=2)
    found = allocate(run, 1.0, 1e-5, schedule="correlated")
    assert found.certificate.theorem == "correlated-bins"
    usual = lethe.plan(lethe.correlate(run), 1.0, 1e-5)
    assert found.chosen.harm < 0.9 * harm_of(usual, FLAT)
    short = allocate(run.replace(steps=3), 1.0, 1e-5, schedule="correlated")
    assert short.certificate.epsilon <= 1.0


@pytest.mark.nightly(by_day="test_every_candidate_meets_the_target_and_the_chosen_one_does_least_harm")
@pytest.mark.slow
def test_what_needs_other_batches_is_shown_and_never_chosen() -> None:
    run = _cyclic(release="all", records=10_000, batches=batches("cyclic", 20), passes=None, steps=10)
    found = allocate(run, 1.0, 1e-5)
    poisson = found.candidates[-1]
    assert (poisson.shape, poisson.needs) == ("poisson", "poisson batches")
    assert poisson.harm < found.chosen.harm
    assert poisson.run == lethe.plan(run.replace(batches=lethe.batches.Poisson(20)), 1.0, 1e-5)
    assert found.run.batches == run.batches
    assert any("With poisson batches" in note for note in found.notes)
    assert [name for name, *_ in other_designs(run.replace(batches=lethe.batches.Poisson(20)))] == ["cyclic"]
    assert other_designs(run.replace(batches=lethe.batches.Poisson(20), neighbours="add_or_remove")) == []
    assert other_designs(run.replace(batches=lethe.batches.Poisson(20, truncate_at=40))) == []
    assert other_designs(run.replace(batches=lethe.batches.Full())) == []


def test_the_strategy_follows_the_influence_and_steps_of_several_sizes_take_that_of_equal_ones() -> None:
    run, fading = _cyclic(release="all"), Influence(rate=0.8, basis="assumed")
    follows, plain = correlated(run, fading), correlated(run, FLAT)
    assert follows.noise != plain.noise

    def cost(one: lethe.Run) -> float:
        return harm_of(one, fading) * sensitivity(one.noise.strategy(run.total_steps), run.steps_per_pass) ** 2

    assert cost(follows) < cost(plain)
    assert shaped(run.replace(step_size=[1.0] * 25 + [0.5] * 25), "correlated", FLAT).noise == plain.noise


def test_a_long_pass_takes_the_strategy_that_reaches_back_over_it() -> None:
    run = _cyclic(release="all", records=4000, batches=batches("cyclic", 20), passes=2)
    assert correlated(run, FLAT).noise.kind == "buffered_toeplitz"

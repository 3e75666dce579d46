"""Runs whose exact privacy is known: every sound theorem that applies to one must say at least its epsilon."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from binned_oracles import Direction, two_bins
from helpers import DESIGNS, batches, make_run
from oracles import Floats, ProjectedChain, law_epsilon, linear_gaussian_mu_same_direction
from scipy import optimize, stats

import lethe

DELTA = 1e-5
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}


@dataclass(frozen=True)
class Exact:
    """A run, and the epsilon at DELTA below which nobody can go."""

    name: str
    run: lethe.Run
    epsilon: Callable[[], float]


def _gaussian(mu: float) -> Callable[[], float]:
    return lambda: lethe.guarantees.GDP(mu).epsilon(DELTA)


def _linear() -> list[Exact]:
    """Losses <g, x>, unprojected, all differences in one direction: the last iterate is Gaussian, (touches) s apart, of variance T tau^2;
    every iterate of full batches is no more than that."""
    cases: list[Exact] = []
    for release in ("last", "all"):
        run = make_run(batches={"design": "full"}, loss=LINEAR, release=release)
        cases.append(Exact(f"linear-full-{release}", run, _gaussian(math.sqrt(5) * 2 / 5.0)))
    for design in DESIGNS:
        for relation in ("replace_one", "zero_out"):
            if design in ("poisson", "without_replacement"):
                continue
            run = make_run(batches=batches(design, 10), loss=LINEAR, neighbours=relation, steps=20, noise_multiplier=4.0)
            touches = 20 if design == "full" else 2
            mu = touches * run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
            cases.append(Exact(f"linear-{design}-{relation}", run, _gaussian(mu)))
    return cases


def _correlated() -> list[Exact]:
    """Linear losses with correlated noise, every iterate: mean vectors apart, and the covariance C^{-1} C^{-T} of the noise in them."""
    cases: list[Exact] = []
    for design, slots in (("full", 1), ("cyclic", 10)):
        for relation, apart in (("replace_one", 2.0), ("zero_out", 1.0)):
            noise = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
            run = make_run(batches=batches(design, 10), loss=LINEAR, neighbours=relation, steps=20, noise=noise, release="all")
            coefficients = np.array([1.0, 0.6, 0.3] + [0.0] * 17)
            inverse = np.linalg.inv(np.tril(coefficients[np.abs(np.subtract.outer(np.arange(20), np.arange(20)))]))
            moved = apart * (np.arange(20) % slots == 0)
            cases.append(Exact(f"correlated-{design}-{relation}", run, _gaussian(_mu(moved, 5.0 * inverse))))
    return cases


def _mu(moved: Floats, spread: Floats) -> float:
    """Of N(0, S S^T) against N(moved, S S^T)."""
    return float(np.sqrt(moved @ np.linalg.solve(spread @ spread.T, moved)))


def _quadratic() -> list[Exact]:
    """Losses m |x - a|^2 / 2: steps multiply by 1 - lambda m. The record of the last batch, and of every batch for full ones."""
    cases: list[Exact] = []
    loss = {"kind": "strongly_convex", "strong_convexity": 0.2, "smoothness": 0.2, "gradient_bound": 1.0}
    for design, touched in (("full", np.ones(30)), ("cyclic", np.arange(1, 31) % 10 == 0)):
        run = make_run(batches=batches(design, 10), loss=loss, steps=30, noise_multiplier=4.0)
        mu = linear_gaussian_mu_same_direction(np.full(30, 1 - 0.5 * 0.2), touched * run.sensitivities, run.noise_stds)
        cases.append(Exact(f"quadratic-{design}", run, _gaussian(mu)))
    return cases


def _averaged() -> list[Exact]:
    """Linear losses, passes that end at the last or at a mean of their iterates: the record of the first batch has moved every one."""
    runs = [make_run(loss=LINEAR, noise_at="pass_ends", pass_weights=weights) for weights in (None, 1.0, [0.2] * 5 + [0.8] * 5)]
    return [
        Exact(f"averaged-linear-{place}", run, _gaussian(math.sqrt(5) * run.sensitivities[0] / run.noise_stds[-1]))
        for place, run in enumerate(runs)
    ]


def _projected() -> list[Exact]:
    """Linear losses on an interval: the projected chain. Pushed by s at every step, from the middle or from the end."""
    cases: list[Exact] = []
    for steps in (1, 2, 10, 100):
        for start in (0.0, 0.5):
            run = make_run(
                records=20,
                batches={"design": "full"},
                steps=steps,
                step_size=1.0,
                noise_multiplier=4.0,  # s = .05, tau = .2
                loss=LINEAR,
                regulariser={"kind": "ball", "radius": 0.5},
                neighbours="zero_out",
            )
            cases.append(Exact(f"projected-full-{steps}-{start}", run, _chain(run, 0.05, 0.0, 0.0, 1.0, start)))
    for design, relation, mine, other in (
        ("poisson", "zero_out", 1, 0),
        ("poisson", "add_or_remove", 1, 0),
        ("poisson", "replace_one", 1, -1),
    ):
        run = _small_domain(design, relation)
        unit = run.record_bound * run.step_sizes[0] / run.batch_size
        cases.append(Exact(f"projected-{design}-{relation}", run, _chain(run, mine * unit, other * unit, 0.0, 0.1, 0.1)))
    # Fixed-size batches: drawing the record replaces another of gradient `background`.
    for relation, other, background in (("replace_one", -1, 0), ("replace_one", -1, 1), ("zero_out", 0, 0), ("zero_out", 0, -1)):
        run = _small_domain("without_replacement", relation)
        unit = run.record_bound * run.step_sizes[0] / run.batch_size
        drift = background * 20 * unit
        worlds = drift + (1 - background) * unit, drift + (other - background) * unit
        cases.append(Exact(f"projected-without-replacement-{relation}-{background}", run, _chain(run, *worlds, drift, 0.1, 0.1)))
    return cases


def _small_domain(design: str, relation: str) -> lethe.Run:
    """A tenth of the records at each step, on an interval of length .2."""
    return make_run(
        records=200,
        batches={"design": design, "size": 20},
        steps=80,
        step_size=0.1,
        noise_multiplier=5.0,
        loss=LINEAR,
        regulariser={"kind": "ball", "radius": 0.1},
        neighbours=relation,
    )


def _chain(run: lethe.Run, drawn: float, other: float, missed: float, chance: float, start: float) -> Callable[[], float]:
    @cache
    def epsilon() -> float:
        chain = ProjectedChain(run.diameter, start, nodes=240)
        worlds = [chain.law(run.noise_stds, [[(chance, push), (1 - chance, missed)]] * run.total_steps) for push in (drawn, other)]
        return law_epsilon(*worlds, 1.2 * DELTA)  # the quadrature where the densities cross costs up to 2e-6

    return epsilon


def _drawn() -> list[Exact]:
    """Poisson batches, linear losses, unprojected: a binomial number of touches, by numerical integration."""
    run = make_run(batches=batches("poisson", 10), loss=LINEAR, neighbours="zero_out", steps=20, noise_multiplier=4.0)

    @cache
    def epsilon() -> float:
        touch = run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
        grid = np.linspace(-12, 12 + 20 * touch, 200_001)
        width = grid[1] - grid[0]
        with_record: Floats = np.sum([stats.binom.pmf(k, 20, 0.1) * stats.norm.pdf(grid - k * touch) for k in range(21)], axis=0) * width
        return law_epsilon(with_record, stats.norm.pdf(grid) * width, 1.001 * DELTA)  # the grid's own error

    return [Exact("linear-poisson", run, epsilon)]


def _secret_bin() -> list[Exact]:
    """Two bins, every iterate released, linear losses: the record pushes along one direction, its neighbour along none or the opposite."""
    cases: list[Exact] = []
    directions: dict[str, Direction] = {"zero_out": "P against Q", "add_or_remove": "P against Q", "replace_one": "replaced"}
    for relation, direction in directions.items():
        run = make_run(records=20, batches=batches("balls_in_bins", 10), passes=3, loss=LINEAR, neighbours=relation, release="all")
        cases.append(Exact(f"secret-bin-{relation}", run, _two_bins(direction, math.sqrt(3) / 5.0)))
    return cases


def _two_bins(direction: Direction, mu: float) -> Callable[[], float]:
    @cache
    def epsilon() -> float:
        def gap(level: float) -> float:
            return math.log(two_bins(direction, level, (mu, mu)) / (1.001 * DELTA))  # the quadrature's own error is 1e-5

        return float(optimize.brentq(gap, mu, 8.0 * mu, xtol=1e-6))

    return epsilon


def _enveloped() -> list[Exact]:
    """Envelopes where they are linear. Of logistic regression with scores between -.5 and .5 and a bound of .1, for both classes: the
    projected chain. Of softmax regression from a start a thousand standard deviations on the wrong side: Gaussian."""
    cases: list[Exact] = []
    for relation, other in (("zero_out", 0.0), ("replace_one", -0.05)):
        for steps in (2, 30):
            run = make_run(
                records=20,
                batches={"design": "full"},
                steps=steps,
                step_size=10.0,  # at most 2 / (.1 * .9)
                clip_norm=0.1,
                clip_method="envelope",
                noise_multiplier=4.0,
                loss={"kind": "logistic_regression", "feature_norm": 1.0},
                regulariser={"kind": "ball", "radius": 0.5},
                neighbours=relation,
            )
            cases.append(Exact(f"enveloped-chain-{relation}-{steps}", run, _chain(run, 0.05, other, 0.0, 1.0, 0.0 if other else 0.5)))
    for design in DESIGNS:
        if design in ("poisson", "without_replacement"):
            continue
        run = make_run(
            batches=batches(design, 10), clip_norm=0.3, clip_method="envelope", neighbours="zero_out", steps=20, noise_multiplier=4.0
        )
        touches = 20 if design == "full" else 2
        mu = touches * run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
        cases.append(Exact(f"enveloped-linear-{design}", run, _gaussian(mu)))
    return cases


EXACT = (*_secret_bin(), *_linear(), *_correlated(), *_quadratic(), *_averaged(), *_projected(), *_drawn(), *_enveloped())

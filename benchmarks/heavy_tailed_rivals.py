"""Private solvers for heavy tails side by side: Lethe's, those of four other papers, the zero vector, and no privacy.

    python benchmarks/heavy_tailed_rivals.py [--results FILE]

(1, 1e-5)-DP for replacing one record; those called pure are (1, 0)-DP. Linear and logistic regression and least absolute deviations on
records of heavy_tailed_data.py. Every solver is told the same public constants: radius, smoothness, strong convexity, and for practical
settings the root mean square of the gradients at 0, at which it clips; "theory" is each paper's own way to set it. Excess risk on clean
data, of absolute deviations the squared one, which has the same minimiser; less is better. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from heavy_tailed_data import Array, Problem, made
from resumable import read_lines
from scipy.special import expit
from stored_results import RESULTS, append

from lethe import heavy_tailed as ht
from lethe.calculus.conversions import gdp_mu
from lethe.heavy_tailed.accelerated import accelerated, accelerated_practical
from lethe.heavy_tailed.coordinate_wise import SmoothedMean, median_oracle, smoothed_oracle
from lethe.heavy_tailed.localisation.descent import localised, strongly_convex
from lethe.heavy_tailed.localisation.plans import localised_practical, noise_led_phases
from lethe.heavy_tailed.localisation.population import population_localised
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, ExactMean, PureClippedMean

EPSILON, DELTA = 1.0, 1e-5
RHO = 0.5 * gdp_mu(EPSILON, DELTA) ** 2
FILE = RESULTS / "heavy_tailed_rivals.jsonl"
CELLS = {(10, 1_000): 10, (10, 10_000): 5, (30, 10_000): 3, (10, 40_000): 3}
"""Columns and records, and how many seeds."""
PROBLEMS = ("linear-student", "linear-pareto", "linear-contaminated", "absolute-student", "logistic-student")
Solver = Callable[[ht.Problem, Any, float, np.random.Generator], Array]


def _one_pass(problem: ht.Problem, records: Any, clip: float, noise: np.random.Generator) -> Array:
    del clip
    plan = accelerated_practical(problem, len(records[0]), RHO)
    assert plan.step is not None
    return accelerated(problem, records, oracle=plan.oracle, steps=plan.steps, step=plan.step, generator=noise).parameters


def _many(oracle: Callable[[ht.Problem, int, float], Any], passes: int = 30) -> Solver:
    """`multi_pass` on all records with the oracle of a problem, a number of records and a clip norm."""
    return lambda problem, records, clip, noise: (
        ht.multi_pass(problem, records, oracle=oracle(problem, len(records[0]), clip), passes=passes, generator=noise).parameters
    )


def _phases(oracle: Callable[[float], ClippedMean | PureClippedMean], steps: int, parts: int) -> Solver:
    def solve(problem: ht.Problem, records: Any, clip: float, noise: np.random.Generator) -> Array:
        each = oracle(clip)
        schedule = noise_led_phases(problem, len(records[0]), each, steps=steps, parts=parts)
        return population_localised(problem, records, schedule=schedule, oracle=each, parts=parts, generator=noise).parameters

    return solve


def _pure(clip: float) -> PureClippedMean:
    return PureClippedMean(clip_norm=clip, epsilon=EPSILON)


def _clipped(clip: float) -> ClippedMean:
    return ClippedMean(clip_norm=clip, rho=RHO)


METHODS: dict[str, Solver] = {
    "multi_pass": _many(lambda problem, records, clip: _clipped(clip)),
    "multi_pass, 5 passes": _many(lambda problem, records, clip: _clipped(clip), passes=5),
    "accelerated": _one_pass,
    "localised": lambda problem, records, clip, noise: (
        localised(problem, records, schedule=localised_practical(problem, len(records[0]), RHO), rho=RHO, generator=noise).parameters
    ),
    "sampled_localised": lambda problem, records, clip, noise: (
        sampled_localised(
            problem,
            records,
            schedule=localised_practical(problem, len(records[0]), RHO, most_steps=100),
            epsilon=EPSILON,
            delta=DELTA,
            generator=noise,
        ).parameters
    ),
    "strongly_convex": lambda problem, records, clip, noise: (
        strongly_convex(problem, records, rho=RHO, most_steps=30, generator=noise).parameters
    ),
    "Kamath et al., theory": _many(lambda problem, records, clip: median_oracle(problem, records, RHO)),
    "Kamath et al., practical": _many(
        lambda problem, records, clip: CoordinateMedian(threshold=clip / math.sqrt(problem.dimension), groups=1, rho=RHO)
    ),
    "Wang et al., theory": _many(lambda problem, records, clip: smoothed_oracle(problem, records, RHO)),
    "Wang et al., practical": _many(
        lambda problem, records, clip: SmoothedMean(scale=clip / math.sqrt(problem.dimension), precision=5.0, rho=RHO)
    ),
    "Asi et al., 3 parts": _phases(_clipped, 30, 3),
    "Asi et al., 1 part": _phases(_clipped, 30, 1),
    "pure, localised, 5 steps": _phases(_pure, 5, 1),
    "pure, multi_pass, 5 passes": _many(lambda problem, records, clip: _pure(clip), passes=5),
    "zero vector": lambda problem, records, clip, noise: np.zeros(problem.dimension),
    "no privacy": _many(lambda problem, records, clip: ExactMean(), passes=300),
}


def _residuals(kind: str, scores: Array, targets: Array) -> Array:
    if kind == "logistic":
        return expit(scores) - targets
    return np.sign(scores - targets) if kind == "absolute" else scores - targets


@lru_cache(maxsize=1)
def _data(kind: str, law: str, columns: int, seed: int) -> Problem:
    return made("linear" if kind == "absolute" else kind, law, columns, seed)


@lru_cache
def _constants(kind: str, law: str, columns: int) -> dict[str, float]:
    if kind != "absolute":
        return made(kind, law, columns, 0).constants
    # The slope is a sign, so that gradients are as long as features; the density of the noise at its median, doubled, is 1.27.
    norms = made("logistic", law, columns, 0).constants
    return {"start": norms["uniform"], "uniform": norms["uniform"], "fourth": norms["fourth"], "smoothness": 1.3, "strong_convexity": 0.1}


def train(name: str, method: str, columns: int, records: int, seed: int) -> float:
    """The score of one model."""
    kind, law = name.split("-")
    data, known = _data(kind, law, columns, seed), _constants(kind, law, columns)
    bound = max(known["fourth"], known["start"])

    def gradient(parameters: Array, rows: Any) -> Array:
        return _residuals(kind, rows[0] @ parameters, rows[1])[:, None] * rows[0]

    problem = ht.Problem(
        gradient=gradient,
        dimension=columns,
        domain=ht.BallDomain(radius=data.radius),
        smoothness=known["smoothness"],
        strong_convexity=known.get("strong_convexity", 0.02),
        moments=ht.Moments(order=4, bound=bound, half=min(known["uniform"], bound), second=known["start"], kind="uniform"),
    )
    rows = (data.features[:records], data.targets[:records])
    return data.gap(METHODS[method](problem, rows, known["start"], np.random.default_rng([5, seed])))


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FILE)
    file = parser.parse_args().results
    names = ("problem", "columns", "records", "seed", "method")
    scores = {tuple(row[name] for name in names): row["score"] for row in read_lines(file)}
    for (columns, records), seeds in CELLS.items():
        for problem in PROBLEMS:
            for seed in range(seeds):
                for method in METHODS:
                    work = (problem, columns, records, seed, method)
                    if work in scores:
                        continue
                    started = time.perf_counter()
                    scores[work] = train(problem, method, columns, records, seed)
                    seconds = round(time.perf_counter() - started, 2)
                    append(file, dict(zip(names, work, strict=True)) | {"score": scores[work], "seconds": seconds})
    for columns, records in CELLS:
        print(f"d = {columns}, n = {records}, {CELLS[columns, records]} seeds", table(columns, records, file), "", sep="\n\n")


def table(columns: int, records: int, file: Path = FILE) -> str:
    """A row for each solver: mean excess risk on every problem of this size, and its standard error; the best private solver's is bold."""
    scores = {(method, problem): list[float]() for method in METHODS for problem in PROBLEMS}
    for row in read_lines(file):
        if (row["columns"], row["records"]) == (columns, records):
            scores[row["method"], row["problem"]].append(row["score"])
    private = [method for method in METHODS if method != "no privacy"]
    best = {problem: min(private, key=lambda method: statistics.fmean(scores[method, problem])) for problem in PROBLEMS}
    lines = [f"| | {' | '.join(PROBLEMS)} |", f"|---|{'---:|' * len(PROBLEMS)}"]
    for method in METHODS:
        cells = []
        for problem in PROBLEMS:
            gaps = scores[method, problem]
            cell = f"{statistics.fmean(gaps):.2g}"
            if method != "zero vector":
                cell += f" ± {statistics.stdev(gaps) / math.sqrt(len(gaps)):.1g}"
            cells.append(f"**{cell}**" if best[problem] == method else cell)
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

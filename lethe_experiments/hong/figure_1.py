r"""Hong, Wang & Zhou 2022, Figure 1, right: a two-layer network trained with uniform and with exponentially falling noise.

Subsets of MNIST, 60 principal components, largest norm 10, 1000 hidden units, full batches, step 0.1, clip norm 4, (4, 1e-8)-DP. The
number of steps, and the rate of the exponential, are chosen on synthetic Gaussian sets of the same size.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from lethe.calculus.conversions import zcdp_rho_simple
from lethe.calculus.guarantees import GDP
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError, MissingExtraError
from lethe_experiments.base import Cell, Options, Progress, Reproduction
from lethe_experiments.hong.samples import (
    COMPONENTS,
    DIGITS,
    REMEDY,
    Sample,
    Task,
    fetched_images,
    gaussian_sample,
    images_from,
    mnist_samples,
)
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

Array = npt.NDArray[np.float64]

EPSILON, DELTA = 4.0, 1e-8
BUDGET = 2.0 * zcdp_rho_simple(EPSILON, DELTA)
"""R of the paper: twice the rho of zCDP."""
CLIP_NORM = 4.0
STEP_SIZE = 0.1
CONFIDENCE = 0.95
DIFFERENCE = "difference"
"""Exponential minus uniform, repeat by repeat."""
SYNTHETIC = "T by synthetic loss"
"""The reading in which each method has the T of its own least loss on synthetic sets; in the other both have one T."""

COLUMNS = (
    "task",
    "records",
    "reading",
    "method",
    "steps",
    "gamma",
    "repeats",
    "training_loss",
    "training_loss_margin",
    "test_accuracy",
    "test_accuracy_margin",
)
TUNING_SEEDS = 1_000_000
"""The first seed of synthetic sets: no repeat draws the noise that its schedule was chosen with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of the figure is computed.

    Args:
        tasks: with their training sizes, each above COMPONENTS.
        steps: numbers of steps tried.
        gammas: rates of the exponential tried, in (0, 1).
        tuning_repeats: Gaussian sets on which each candidate is tried.
        repeats: subsets, starts and noises with which each method is then trained.
        equal_steps: T of the second reading, one of `steps`; gamma is then chosen at that T.
        hidden: units of the network.
    """

    tasks: tuple[Task, ...]
    steps: tuple[int, ...]
    gammas: tuple[float, ...]
    tuning_repeats: int
    repeats: int
    equal_steps: int = 100
    hidden: int = 1000

    @property
    def sets(self) -> tuple[tuple[Task, int], ...]:
        """Each task with each of its sizes."""
        return tuple((task, size) for task in self.tasks for size in task.sizes)

    @property
    def trainings(self) -> int:
        """Networks trained in all."""
        tried = len(self.steps) * (1 + len(self.gammas)) * self.tuning_repeats
        return len(self.sets) * (tried + 4 * self.repeats)


QUICK = Plan(
    tasks=(Task(name="MNIST35", digits=(3, 5), sizes=(250, 500, 1000, 2000)), Task(name="MNIST", digits=DIGITS, sizes=(1000,))),
    steps=(50, 100, 150),
    gammas=(0.95, 0.975, 0.99),
    tuning_repeats=2,
    repeats=5,
)
FULL = replace(QUICK, steps=tuple(range(50, 151, 10)), gammas=(0.9, 0.93, 0.95, 0.965, 0.975, 0.985, 0.99, 0.995), repeats=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Noise over so many steps: uniform where gamma is None."""

    steps: int
    gamma: float | None

    @property
    def method(self) -> str:
        """What it is called."""
        return "uniform" if self.gamma is None else "exponential"

    def variances(self) -> Array:
        r"""$\sigma_t^2$, shape (T,), spending the whole budget."""
        return uniform_schedule(self.steps, BUDGET) if self.gamma is None else exp_schedule(self.gamma, self.steps, BUDGET)


class Training(NamedTuple):
    """One network: on so many images of a task, or on a synthetic set of that size if the seed is TUNING_SEEDS or above."""

    task: Task
    records: int
    schedule: Schedule
    seed: int


Train = Callable[[Iterable[Training]], list[tuple[float, float]]]
"""Training loss and test accuracy of each training; none depends on another."""


def hong_figure_1(progress: Progress | None = None, options: Options | None = None, *, plan: Plan | None = None) -> Reproduction:
    """Hong, Wang, Zhou 2022, Figure 1, right: a network on MNIST with uniform and with exponential noise (takes minutes).

    Args:
        progress: told (networks trained, networks in all).
        options: the data, the number of repeats, and whether to do 100 of them over the whole grid.
        plan: what to compute; None: QUICK, or FULL if the options ask for it.
    Raises:
        InputError: the data cannot be had, cannot be used, or is too small.
        MissingExtraError: PyTorch, joblib, or scikit-learn where the data is fetched, is not installed.
        LetheError: a training was lost where `joblib.parallel_config` had it carried out.
    """
    if find_spec("torch") is None:
        raise MissingExtraError("hong-figure-1 trains, and needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"')
    from lethe.audit.games.trainings import all_trained
    from lethe_experiments.hong.two_layer_network import loss_and_accuracy

    chosen = options or Options()
    work = plan or (FULL if chosen.full else QUICK)
    if chosen.repeats is not None:
        work = replace(work, repeats=chosen.repeats)
    training, test = fetched_images() if chosen.data is None else images_from(chosen.data)
    for task in work.tasks:
        _require_enough(training, test, task, chosen.data)
    done = 0

    def counted() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, work.trainings)

    def train(trainings: Iterable[Training]) -> list[tuple[float, float]]:
        return all_trained(loss_and_accuracy, arguments(trainings, training, test, work.hidden), finished=counted)

    return Reproduction(
        name="hong-figure-1",
        title="Hong, Wang & Zhou 2022, Figure 1: training loss and test accuracy with uniform and with exponential noise",
        source="Hong, Wang, Zhou, Dynamic privacy budget allocation improves data efficiency of differentially private gradient descent, "
        "FAccT 2022, doi:10.1145/3531146.3533070, Section 5 and Figure 1.",
        shape="sizes",
        columns=COLUMNS,
        rows=tuple(row for task, size in work.sets for row in compared(task, size, work, train)),
        notes=_notes(work),
    )


def arguments(trainings: Iterable[Training], training: Sample, test: Sample, hidden: int) -> Iterator[tuple[Any, ...]]:
    """Of `loss_and_accuracy`, for each training, from MNIST's images."""

    @lru_cache(maxsize=8)  # trainings on one set follow each other, or are of few sets
    def sets(task: Task, records: int, seed: int) -> tuple[Sample, Sample]:
        if seed < TUNING_SEEDS:
            return mnist_samples(training, test, task, records, seed)
        sample = gaussian_sample(records, len(task.digits), seed)
        return sample, sample

    for task, records, schedule, seed in trainings:
        seen, unseen = sets(task, records, seed)
        yield seen.features, seen.labels, unseen.features, unseen.labels, schedule.variances(), hidden, CLIP_NORM, STEP_SIZE, seed


def mean_and_margin(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean, and half the width of its confidence interval by Student's t; None where there is none.

    A training that diverged has an infinite loss; how far it is from another that did, nobody can say.
    """
    if any(math.isnan(value) for value in values):
        return None, None
    mean = sum(values) / len(values)
    if len(values) < 2 or not math.isfinite(mean):
        return mean, None
    quantile = float(special.stdtrit(len(values) - 1, 0.5 * (1.0 + CONFIDENCE)))
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))


def compared(task: Task, records: int, plan: Plan, train: Train) -> list[tuple[Cell, ...]]:
    """The rows of one task and size: uniform, exponential and their difference, in both readings."""
    candidates = [Schedule(steps=steps, gamma=gamma) for steps in plan.steps for gamma in (None, *plan.gammas)]
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + plan.tuning_repeats)
    reached = train(Training(task, records, candidate, seed) for candidate in candidates for seed in seeds)
    losses = {one: sum(loss for loss, _ in reached[place * len(seeds) :][: len(seeds)]) for place, one in enumerate(candidates)}

    def best(uniform: bool, steps: Sequence[int]) -> Schedule:
        return min((one for one in candidates if (one.gamma is None) == uniform and one.steps in steps), key=lambda one: losses[one])

    readings = {SYNTHETIC: plan.steps, f"T = {plan.equal_steps}": (plan.equal_steps,)}
    schedules = [best(uniform, steps) for steps in readings.values() for uniform in (True, False)]
    # Of a repeat one subset, one start and one stream of noise for all.
    results = train(Training(task, records, schedule, seed) for seed in range(plan.repeats) for schedule in schedules)
    rows: list[tuple[Cell, ...]] = []
    for first, reading in zip((0, 2), readings, strict=True):
        reached = [results[first::4], results[first + 1 :: 4]]
        changes = [(after[0] - before[0], after[1] - before[1]) for before, after in zip(*reached, strict=True)]
        settings: list[tuple[Cell, ...]] = [(each.method, each.steps, each.gamma) for each in schedules[first : first + 2]]
        for setting, values in zip([*settings, (DIFFERENCE, None, None)], [*reached, changes], strict=True):
            margins = (mean_and_margin(column) for column in zip(*values, strict=True))
            rows.append((task.name, records, reading, *setting, plan.repeats, *(part for pair in margins for part in pair)))
    return rows


def _require_enough(training: Sample, test: Sample, task: Task, data: Path | None) -> None:
    source = "OpenML, mnist_784" if data is None else str(data)
    pixels, others = training.features.shape[1], test.features.shape[1]
    if pixels != others or pixels < COMPONENTS:
        needed = f"as many of both, and at least {COMPONENTS}"
        raise InputError(f"training images have {pixels} pixels and test images {others}; it needs {needed}.", source=source, remedy=REMEDY)
    for name, sample, least in (("y_train", training, max(task.sizes)), ("y_test", test, 1)):
        there = int(np.isin(sample.labels, task.digits).sum())
        if there < least:
            wanted = ", ".join(map(str, task.digits))
            raise InputError(f"{name} has {there} of the digits {wanted}; {task.name} needs {least}.", source=source, remedy=REMEDY)


def _notes(plan: Plan) -> tuple[str, ...]:
    exact = shown(GDP(math.sqrt(BUDGET)).epsilon(DELTA))
    tried = f"{len(plan.steps)} values, {plan.steps[0]} to {plan.steps[-1]}"
    rates = ", ".join(f"{gamma:g}" for gamma in plan.gammas)
    return (
        f"Each row is the mean of {plan.repeats} trainings; a margin is half the width of the {CONFIDENCE:.0%} confidence interval of that "
        "mean, over subset, start and noise together. Both methods get the same ones, so that their difference, exponential minus "
        "uniform in each repeat, is known better than either. The paper averages 100 (--full).",
        f"R = {BUDGET:.6g} is what the paper's conversion allows for ({EPSILON:g}, {DELTA:g})-DP; it is R/2 of zCDP. Neighbours differ by "
        "a record zeroed out, with the divisor N fixed; one record replaced by another costs four times R. Proved of one training, with "
        f"all its iterates seen, is sqrt(R)-GDP, whose epsilon at that delta is {exact}.",
        f"T ({tried}) and gamma ({rates}) are those with the least mean training loss on {plan.tuning_repeats} synthetic Gaussian sets of "
        f"the same size; in the second reading gamma alone, at T = {plan.equal_steps} for both. The sets' classes are the largest of "
        "random linear scores. How the paper labels its sets, what it compares on them and on which grid is not said.",
        "Not accounted for, in the paper and here: principal components, centring and scaling are computed from the private records, and "
        "the step size was taken from training on them without noise. The paper also ignores the cost of its search for T; here that sees "
        "synthetic data only, and costs none. The losses and accuracies shown are computed without noise, and anyone can draw the noise "
        "again from the number of the repeat: this is a figure, not a release.",
        "Could not be read: training sizes, grid and every published number stand in the picture. Not said: the activation (here ReLU), "
        "the start (here PyTorch's default), of what the deviation is 1 (here of each component) and what is tested on (here all of "
        "MNIST's test images of those digits). So the comparison is made again, not its very numbers.",
        "The left panel is hong-figure-1-left. The paper draws MNIST35 on the right; MNIST, 1000 images of all digits, is its other set.",
    )

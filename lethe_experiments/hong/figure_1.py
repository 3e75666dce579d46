r"""Hong, Wang & Zhou 2022, Figure 1, right: a two-layer network trained with uniform and with exponentially falling noise.

Subsets of MNIST, 60 principal components, largest norm 10, 1000 hidden units, full batches, step 0.1, clip norm 4, (4, 1e-8)-DP. The
number of steps, and the rate of the exponential, are chosen on synthetic Gaussian sets of the same size.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import special

from lethe.calculus.guarantees import GDP
from lethe.calculus.renyi_conversions import zcdp_rho_simple
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError, MissingExtraError
from lethe.jobs.datasets import load_table
from lethe_experiments.base import Cell, Options, Progress, Reproduction
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

EPSILON, DELTA = 4.0, 1e-8
BUDGET = 2.0 * zcdp_rho_simple(EPSILON, DELTA)
"""R of the paper: twice the rho of zCDP."""
CLIP_NORM = 4.0
STEP_SIZE = 0.1
COMPONENTS = 60
DATA_SCALE = 10.0
CONFIDENCE = 0.95
DIFFERENCE = "difference"
"""Exponential minus uniform, repeat by repeat."""

COLUMNS = (
    "task",
    "records",
    "method",
    "steps",
    "gamma",
    "repeats",
    "training_loss",
    "training_loss_margin",
    "test_accuracy",
    "test_accuracy_margin",
)
_MNIST_TRAINING = 60_000  # the first of OpenML's 70 000 images are the training set
_TUNING_SEEDS = 1_000_000  # no repeat draws the noise that its schedule was chosen with
_REMEDY = "give --data FILE.npz with the arrays x_train, y_train, x_test, y_test: MNIST's images and digits."
_DIGITS = tuple(range(10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Which digits to tell apart, and from how many training images."""

    name: str
    digits: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of the figure is computed.

    Args:
        tasks: with their training sizes, each above COMPONENTS.
        steps: numbers of steps tried.
        gammas: rates of the exponential tried, in (0, 1).
        tuning_repeats: Gaussian sets on which each candidate is tried.
        repeats: subsets, starts and noises with which each method is then trained.
        hidden: units of the network.
    """

    tasks: tuple[Task, ...]
    steps: tuple[int, ...]
    gammas: tuple[float, ...]
    tuning_repeats: int
    repeats: int
    hidden: int = 1000

    @property
    def trainings(self) -> int:
        """Networks trained in all."""
        tried = len(self.steps) * (1 + len(self.gammas)) * self.tuning_repeats
        return sum(len(task.sizes) for task in self.tasks) * (tried + 2 * self.repeats)


QUICK = Plan(
    tasks=(Task(name="MNIST35", digits=(3, 5), sizes=(250, 500, 1000, 2000)), Task(name="MNIST", digits=_DIGITS, sizes=(1000,))),
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Features as rows and class numbers from 0."""

    features: Array
    labels: Labels


Train = Callable[[Sample, Sample, Schedule, int], tuple[float, float]]
"""Training set, test set, schedule and seed to training loss and test accuracy."""


def hong_figure_1(progress: Progress | None = None, options: Options | None = None, *, plan: Plan | None = None) -> Reproduction:
    """Hong, Wang, Zhou 2022, Figure 1: a network on MNIST with uniform and with exponential noise (takes minutes).

    Args:
        progress: told (networks trained, networks in all).
        options: the data, the number of repeats, and whether to do 100 of them over the whole grid.
        plan: what to compute; None: QUICK, or FULL if the options ask for it.
    Raises:
        InputError: the data cannot be had, cannot be used, or is too small.
        MissingExtraError: PyTorch, or scikit-learn where the data is fetched, is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtraError("hong-figure-1 trains, and needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"')
    from lethe_experiments.hong.two_layer_network import Records, TwoLayerNetwork, descend

    chosen = options or Options()
    work = plan or (FULL if chosen.full else QUICK)
    if chosen.repeats is not None:
        work = replace(work, repeats=chosen.repeats)
    training, test = fetched_images() if chosen.data is None else images_from(chosen.data)
    for task in work.tasks:
        _require_enough(training, test, task, chosen.data)
    done = 0

    def train(records: Sample, tests: Sample, schedule: Schedule, seed: int) -> tuple[float, float]:
        nonlocal done
        classes = int(records.labels.max()) + 1
        network = TwoLayerNetwork(inputs=records.features.shape[1], hidden=work.hidden, outputs=classes)
        seen, unseen = (Records.of(sample.features, sample.labels, classes) for sample in (records, tests))
        parameters = descend(network, seen, schedule.variances(), clip_norm=CLIP_NORM, step_size=STEP_SIZE, seed=seed)
        done += 1
        if progress is not None:
            progress(done, work.trainings)
        loss = network.loss(parameters, seen)
        return (loss if math.isfinite(loss) else math.inf), network.accuracy(parameters, unseen)

    return Reproduction(
        name="hong-figure-1",
        title="Hong, Wang & Zhou 2022, Figure 1: training loss and test accuracy with uniform and with exponential noise",
        source="Hong, Wang, Zhou, Dynamic privacy budget allocation improves data efficiency of differentially private gradient descent, "
        "FAccT 2022, doi:10.1145/3531146.3533070, Section 5 and Figure 1.",
        shape="sizes",
        columns=COLUMNS,
        rows=tuple(row for task in work.tasks for size in task.sizes for row in _compared(training, test, task, size, work, train)),
        notes=_notes(work),
    )


def images_from(path: Path) -> tuple[Sample, Sample]:
    """MNIST's training and test images, as rows of pixels, from an .npz file.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    if path.suffix.lower() != ".npz":
        raise InputError(f"--data: got {path}; it needs an .npz file.", remedy=_REMEDY)
    names = tuple(str(digit) for digit in _DIGITS)
    tables = [load_table(path, target, task="classification", classes=names) for target in ("y_train", "y_test")]
    training, test = (Sample(features=table.features, labels=table.targets) for table in tables)
    return training, test


def fetched_images() -> tuple[Sample, Sample]:
    """MNIST's training and test images from OpenML, by scikit-learn, which keeps a copy in the user's folder.

    Raises:
        InputError: they could not be fetched.
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise MissingExtraError("scikit-learn is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error
    try:
        # The other parser needs pandas.
        pixels, digits = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff", return_X_y=True)
    except (OSError, ValueError, HTTPException) as error:
        raise InputError(f"MNIST could not be fetched: {error}.", source="OpenML, mnist_784", remedy=_REMEDY) from error
    whole = Sample(features=np.asarray(pixels, dtype=np.float64), labels=np.asarray(digits, dtype=np.int64))
    return _rows(whole, np.arange(_MNIST_TRAINING)), _rows(whole, np.arange(_MNIST_TRAINING, len(whole.labels)))


def mnist_samples(training: Sample, test: Sample, task: Task, records: int, seed: int) -> tuple[Sample, Sample]:
    """`records` random training images of the task's digits, and all its test images, mapped by what the former say.

    Their first 60 principal components, centred and of deviation 1 each, scaled so that the longest training record has norm 10.
    """
    rows = np.flatnonzero(np.isin(training.labels, task.digits))
    drawn = np.random.default_rng([seed, records, len(task.digits)]).choice(rows, records, replace=False)
    seen, unseen = _rows(training, drawn), _rows(test, np.flatnonzero(np.isin(test.labels, task.digits)))
    centred = seen.features - seen.features.mean(axis=0)
    components = np.linalg.eigh(centred.T @ centred).eigenvectors[:, : -COMPONENTS - 1 : -1]  # the largest come last
    features = normalised(seen.features @ components, unseen.features @ components)
    numbered, tested = (
        Sample(features=rows, labels=np.searchsorted(task.digits, sample.labels))
        for rows, sample in zip(features, (seen, unseen), strict=True)
    )
    return numbered, tested


def gaussian_sample(records: int, classes: int, seed: int) -> Sample:
    """Independent standard normal features, normalised as the images are; the class is the largest of as many random linear scores."""
    random = np.random.default_rng([seed, records, classes])
    drawn = random.normal(size=(records, COMPONENTS))
    features, _ = normalised(drawn, drawn)
    labels = (features @ random.normal(size=(COMPONENTS, classes))).argmax(axis=1)
    labels[:classes] = np.arange(classes)  # each class occurs
    return Sample(features=features, labels=labels)


def normalised(rows: Array, others: Array) -> tuple[Array, Array]:
    """Both, shifted and scaled so that columns of `rows` have mean 0 and one deviation, and its longest row the norm DATA_SCALE.

    Raises:
        InputError: a column of `rows` is constant.
    """
    centre, deviation = rows.mean(axis=0), rows.std(axis=0)
    if not deviation.min() > 1e-9 * deviation.max():
        raise InputError(
            f"the training images vary in fewer than {rows.shape[1]} directions.", source="--data, or MNIST as fetched", remedy=_REMEDY
        )
    unit, other = (rows - centre) / deviation, (others - centre) / deviation
    scale = DATA_SCALE / np.linalg.norm(unit, axis=1).max()
    return unit * scale, other * scale


def choose(candidates: Sequence[Schedule], records: int, classes: int, repeats: int, train: Train) -> Schedule:
    """The candidate with the smallest mean training loss on Gaussian sets of `records`; of equals the first."""
    seeds = [_TUNING_SEEDS + repeat for repeat in range(repeats)]
    samples = [gaussian_sample(records, classes, seed) for seed in seeds]

    def mean_loss(candidate: Schedule) -> float:
        return sum(train(sample, sample, candidate, seed)[0] for sample, seed in zip(samples, seeds, strict=True))

    return min(candidates, key=mean_loss)


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


def _compared(training: Sample, test: Sample, task: Task, records: int, plan: Plan, train: Train) -> list[tuple[Cell, ...]]:
    uniform = [Schedule(steps=steps, gamma=None) for steps in plan.steps]
    exponential = [Schedule(steps=steps, gamma=gamma) for steps in plan.steps for gamma in plan.gammas]
    chosen = [choose(tried, records, len(task.digits), plan.tuning_repeats, train) for tried in (uniform, exponential)]
    reached: list[list[tuple[float, float]]] = [[] for _ in chosen]
    for seed in range(plan.repeats):
        # One subset, one start and one stream of noise for both.
        samples = mnist_samples(training, test, task, records, seed)
        for results, schedule in zip(reached, chosen, strict=True):
            results.append(train(*samples, schedule, seed))
    changes = [(after[0] - before[0], after[1] - before[1]) for before, after in zip(*reached, strict=True)]
    settings: list[tuple[Cell, ...]] = [(schedule.method, schedule.steps, schedule.gamma) for schedule in chosen]
    rows: list[tuple[Cell, ...]] = []
    for setting, results in zip([*settings, (DIFFERENCE, None, None)], [*reached, changes], strict=True):
        losses, accuracies = (mean_and_margin(values) for values in zip(*results, strict=True))
        rows.append((task.name, records, *setting, plan.repeats, *losses, *accuracies))
    return rows


def _require_enough(training: Sample, test: Sample, task: Task, data: Path | None) -> None:
    source = "OpenML, mnist_784" if data is None else str(data)
    pixels, others = training.features.shape[1], test.features.shape[1]
    if pixels != others or pixels < COMPONENTS:
        needed = f"as many of both, and at least {COMPONENTS}"
        raise InputError(
            f"training images have {pixels} pixels and test images {others}; it needs {needed}.", source=source, remedy=_REMEDY
        )
    for name, sample, least in (("y_train", training, max(task.sizes)), ("y_test", test, 1)):
        there = int(np.isin(sample.labels, task.digits).sum())
        if there < least:
            wanted = ", ".join(map(str, task.digits))
            raise InputError(f"{name} has {there} of the digits {wanted}; {task.name} needs {least}.", source=source, remedy=_REMEDY)


def _rows(sample: Sample, rows: npt.NDArray[np.int64]) -> Sample:
    return Sample(features=sample.features[rows], labels=sample.labels[rows])


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
        "the same size, whose classes are the largest of random linear scores. How the paper labels its sets, what it compares on them and "
        "on which grid is not said.",
        "Not accounted for, in the paper and here: principal components, centring and scaling are computed from the private records, and "
        "the step size was taken from training on them without noise. The paper also ignores the cost of its search for T; here that sees "
        "synthetic data only, and costs none. The losses and accuracies shown are computed without noise, and anyone can draw the noise "
        "again from the number of the repeat: this is a figure, not a release.",
        "Could not be read: training sizes, grid and every published number stand in the picture. Not said: the activation (here ReLU), "
        "the start (here PyTorch's default), of what the deviation is 1 (here of each component) and what is tested on (here all of "
        "MNIST's test images of those digits). So the comparison is made again, not its very numbers.",
        "The left panel, the influence of each step's noise at several data scales, is not computed. The paper draws MNIST35 on the right; "
        "MNIST, 1000 images of all digits, is its other set.",
    )

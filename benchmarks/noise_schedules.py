"""Test accuracy of four noise schedules at equal certified epsilon, under composition and under the last iterate, on the demo's digits.

    python benchmarks/noise_schedules.py [SEEDS]

Softmax regression, 20 batches a pass in fixed order, 5 passes, (epsilon, 1e-5)-DP under zero out. The influence is estimated on synthetic
data that know nothing of the digits but their number, columns and classes. Mean and 95 % interval over seeds; every schedule of a row sees
the same splits. The last column compares harm at epsilon = 1 with that of uniform noise under the same accounting.
"""

from __future__ import annotations

import statistics
import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import stats

from lethe.influence import SyntheticData, adjoint_influence
from lethe.jobs.datasets import centred_digits, split
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.candidates import Candidate
from lethe.run.batches import Cyclic
from lethe.run.losses import Softmax
from lethe.run.run import Release, Run
from lethe.train import Linear, TrainOptions, fit

EPSILONS, DELTA = (0.5, 1.0, 2.0), 1e-5
BATCHES_PER_PASS, PASSES, CLIP_NORM, TEST_FRACTION = 20, 5, 1.0, 0.22
RELEASES: tuple[Release, ...] = ("all", "last")


def _run(records: int, release: Release) -> Run:
    loss = Softmax(feature_norm=1.0, evidence="enforced")
    return Run(
        records=records,
        batches=Cyclic(size=records // BATCHES_PER_PASS),
        passes=PASSES,
        step_size=0.5 / loss.curvature[1],
        clip_norm=CLIP_NORM,
        loss=loss,
        release=release,
        neighbours="zero_out",
    )


def _interval(values: list[float]) -> str:
    spread = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.fmean(values):.3f} ± {spread:.3f}"


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    table = centred_digits()
    splits = [split(table, TEST_FRACTION, seed=seed) for seed in range(seeds)]
    records = len(splits[0][0].features)
    assert table.classes is not None
    guess = SyntheticData(columns=table.features.shape[1], classes=table.classes, seed=0, decay=0.5)
    influence = adjoint_influence(_run(records, "last").replace(noise_multiplier=5.0), guess, repeats=20, seed=0).influence
    candidates: dict[tuple[Release, str], dict[float, Candidate]] = {}
    for release in RELEASES:
        for epsilon in EPSILONS:
            for one in allocate(_run(records, release), epsilon, DELTA, influence=influence).candidates:
                if one.run is not None:
                    candidates.setdefault((release, one.shape), {})[epsilon] = one
    page = Table(
        title=f"digits, {records} records, {BATCHES_PER_PASS} batches a pass, {PASSES} passes, {seeds} seeds; {influence.describe()}"
    )
    page.add_column("released")
    page.add_column("schedule")
    for epsilon in EPSILONS:
        page.add_column(f"accuracy at epsilon = {epsilon:g}", justify="right")
    page.add_column("harm / uniform", justify="right")
    with Progress(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=len(candidates) * len(EPSILONS) * seeds)
        for (release, shape), by_epsilon in candidates.items():
            cells: list[str] = []
            for one in by_epsilon.values():
                assert one.run is not None
                accuracies: list[float] = []
                for seed, (train, test) in enumerate(splits):
                    options = TrainOptions(seed=seed)
                    trained = fit(Linear(classes=table.classes), None, (train.features, train.targets), one.run, options=options)
                    accuracies.append(trained.model.accuracy(test.features, test.targets))
                    bar.advance(task)
                cells.append(_interval(accuracies))
            uniform = candidates[(release, "uniform")][1.0].harm
            page.add_row("every iterate" if release == "all" else "last iterate", shape, *cells, f"{by_epsilon[1.0].harm / uniform:.3f}")
    Console(width=150).print(page)


if __name__ == "__main__":
    main()

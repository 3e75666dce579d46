"""What ranges and norms that are released, the defaults, make of fits with few records and many: three tables.

    python benchmarks/released_ranges.py [--seeds 20]

One record replaced by another, all parameters at their defaults but epsilon. A seed draws the records and the noise; no file is read.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression as Plain
from sklearn.metrics import r2_score

from lethe.errors import LetheError
from lethe.estimators import LinearRegression, LogisticRegression, PrivateStandardScaler, Ridge

EPSILONS = (0.3, 1.0, 3.0)
SIZES = (200, 500, 1000, 3000, 10_000)
_TESTED = 2000
_FAR = 10.0  # times the true standard deviation, or a tenth of it: such a column is lost
Rows = tuple[np.ndarray, np.ndarray]


def _linear(generator: np.random.Generator, count: int) -> Rows:
    """Rows of 5 columns, and a signal of variance 1 with noise of variance 1/4."""
    rows = generator.uniform(-1.0, 1.0, (count, 5))
    return rows, rows @ np.array([1.0, -1.0, 0.7, 0.5, 0.0]) + 0.5 * generator.standard_normal(count)


TARGETS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "about 0": lambda values: values,
    "0 and above": lambda values: np.maximum(150.0 + 75.0 * values, 0.0),
    "log-normal": lambda values: 1e4 * np.exp(0.8 * values),
    "far from 0": lambda values: 1970.0 + 10.0 * values,
}
COLUMNS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda generator, count: generator.standard_normal((count, 10)),
    "0 and 1": lambda generator, count: 1.0 * (generator.random((count, 10)) < np.geomspace(0.05, 0.5, 10)),
    "counts, mostly 0": lambda generator, count: generator.poisson(3.0, (count, 10)) * (generator.random((count, 10)) < 0.15),
    "log-normal": lambda generator, count: 1e3 * np.exp(generator.standard_normal((count, 10))),
}


def fitted(make: Any, rows: np.ndarray, targets: np.ndarray | None, epsilon: float, seed: int) -> Any:
    """A model, or None where it is refused."""
    try:
        return make(epsilon=epsilon, neighbours="replace_one", random_state=seed, seed_noise=True).fit(rows, targets)
    except LetheError:
        return None


def regression(name: str, make: Any, size: int, epsilon: float, seeds: int) -> list[str]:
    """A line: how many were refused, fell below 0, R squared, and the widths of ranges beside one and a half times the true one."""
    scores, widths, plain = list[float](), list[float](), list[float]()
    targets = np.zeros(0)
    for seed in range(seeds):
        if name == "diabetes":
            bunch: Any = load_diabetes()
            rows, targets = others, answers = bunch.data, bunch.target
        else:
            generator = np.random.default_rng([1, seed])
            rows, signal = _linear(generator, size + _TESTED)
            values = TARGETS[name](signal)
            (rows, others), (targets, answers) = (np.split(part, [size]) for part in (rows, values))
        plain.append(float(r2_score(answers, Plain().fit(rows, targets).predict(others))))
        model = fitted(make, rows, targets, epsilon, seed)
        if model is not None:
            scores.append(float(r2_score(answers, model.predict(others))))
            low, high = np.quantile(targets, [0.05, 0.95])
            widths.append(float(np.diff(model.target_range_)[0] / (1.5 * (high - low))))
    head = [name, make.__name__, f"{len(targets)}", f"{epsilon:g}", f"{seeds - len(scores)}"]
    if not scores:
        return [*head, "-", "-", "-", "-", f"{np.median(plain):.2f}"]
    below = f"{np.mean(np.array(scores) < 0.0):.0%}"
    return [*head, below, f"{np.median(scores):.2f}", f"{min(scores):.3g}", _three(widths), f"{np.median(plain):.2f}"]


def lost(name: str, size: int, epsilon: float, seeds: int) -> list[str]:
    """A line: the columns whose released scale is far from the standard deviation, or of which little is left once they are clipped."""
    ratios, kept = list[float](), list[float]()
    for seed in range(seeds):
        columns = COLUMNS[name](np.random.default_rng([2, seed]), size)
        scaler = fitted(PrivateStandardScaler, columns, None, epsilon, seed)
        if scaler is None:
            continue
        after = scaler.transform(columns)
        for one, scaled in zip(columns.T, after.T, strict=True):
            true, spread = float(one.std()), float(scaled.std())
            ratios.append(spread)
            kept.append(abs(float(np.corrcoef(one, scaled)[0, 1])) if min(true, spread) > 0.0 else 0.0)
    far = [not (1.0 / _FAR <= ratio <= _FAR and left > 0.5) for ratio, left in zip(ratios, kept, strict=True)]
    refused = seeds - len(ratios) // 10
    if not ratios:
        return [name, f"{size}", f"{epsilon:g}", f"{refused}", "-", "-"]
    return [name, f"{size}", f"{epsilon:g}", f"{refused}", f"{np.mean(far):.1%}", _three(ratios)]


def norm(size: int, epsilon: float, seeds: int) -> list[str]:
    """A line: released norms over the true 0.75 quantile."""
    ratios = list[float]()
    for seed in range(seeds):
        rows = np.random.default_rng([3, seed]).standard_normal((size, 5))
        labels = (rows[:, 0] > 0.0).astype(int)
        try:
            model = LogisticRegression(epsilon=epsilon, neighbours="replace_one", classes=[0, 1], random_state=seed, seed_noise=True).fit(
                rows, labels
            )
        except LetheError:
            continue
        ratios.append(model.feature_norm_ / float(np.quantile(np.linalg.norm(rows, axis=1), 0.75)))
    return [f"{size}", f"{epsilon:g}", f"{seeds - len(ratios)}", _three(ratios) if ratios else "-"]


def _three(values: list[float]) -> str:
    return f"{min(values):.2g}, {np.median(values):.2f}, {max(values):.2g}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    warnings.filterwarnings("ignore")
    console = Console(stderr=True)
    scored = ("refused", "below 0", "median R2", "worst R2", "width / true: least, median, most", "not private")
    table = Table("targets", "estimator", "records", "epsilon", *scored, title="Ranges of targets")
    places = [("diabetes", make, 442) for make in (LinearRegression, Ridge)]
    places += [(name, LinearRegression, size) for name in TARGETS for size in SIZES]
    for name, make, size in track(places, "regressions", console=console):
        for epsilon in EPSILONS:
            table.add_row(*regression(name, make, size, epsilon, seeds))
    scales = Table("columns", "records", "epsilon", "refused", "lost", "std after: least, median, most", title="Scaled columns, 10 at once")
    for name in track(COLUMNS, "scalers", console=console):
        for size in SIZES:
            for epsilon in EPSILONS:
                scales.add_row(*lost(name, size, epsilon, seeds))
    norms = Table("records", "epsilon", "refused", "norm / true: least, median, most", title="Norms of 5 normal columns")
    for size in SIZES:
        for epsilon in EPSILONS:
            norms.add_row(*norm(size, epsilon, seeds))
    for one in (table, scales, norms):
        Console(width=160).print(one)


if __name__ == "__main__":
    main()

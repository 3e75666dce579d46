"""Private regression of counts and costs beside none and beside the mean: D squared on other records, and the mean prediction's error.

    python benchmarks/counts_and_costs.py [--seeds 5] [--records 20000] [--epsilons 1 3]

One record's contribution set to zero, delta = 1e-6; six features, standard normal, and all settings at their defaults, the range of the
targets released. Seeds draw the records and the noise; mean and 95 % interval. The constant mean has D squared 0.
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from private_linear_summary import half_width
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import TweedieRegressor

import lethe.estimators as private

_TESTED = 40_000
_WEIGHTS = np.array([0.5, -0.4, 0.3, 0.2, 0.0, 0.0])


class Targets(NamedTuple):
    """A set and the power it is fitted with."""

    name: str
    power: float


SETS = (
    Targets("rare counts, mean 0.25", 1.0),
    Targets("counts, overdispersed", 1.0),
    Targets("compound costs, 86 % are 0", 1.5),
    Targets("gamma costs, deviation = mean", 2.0),
    Targets("log-normal costs, deviation = 1.8 means", 2.0),
)


def drawn(chosen: Targets, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets."""
    rng = np.random.default_rng([SETS.index(chosen), seed])
    rows = rng.standard_normal((count, 6))
    means = np.exp(rows @ _WEIGHTS)
    match SETS.index(chosen):
        case 0:
            targets = rng.poisson(0.2 * means).astype(float)
        case 1:
            targets = rng.poisson(2.0 * means * rng.gamma(0.7, 1.0 / 0.7, count)).astype(float)
        case 2:
            targets = 500.0 * rng.gamma(np.maximum(rng.poisson(0.15 * means), 1e-9))
        case 3:
            targets = 1000.0 * means * rng.gamma(1.0, 1.0, count)
        case _:
            targets = 1000.0 * means * rng.lognormal(0.0, 1.2, count)
    return rows, targets


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("targets", "no privacy", *(f"epsilon {epsilon:g}: D^2, mean / target" for epsilon in asked.epsilons))
    for chosen in SETS:
        plain, found = list[float](), {epsilon: list[tuple[float, float]]() for epsilon in asked.epsilons}
        for seed in range(asked.seeds):
            rows, targets = drawn(chosen, asked.records + _TESTED, seed)
            train, test = slice(asked.records), slice(asked.records, None)
            unit = targets[train].mean()
            best = TweedieRegressor(power=chosen.power, link="log", alpha=0.0, max_iter=1000).fit(rows[train], targets[train] / unit)
            plain.append(best.score(rows[test], targets[test] / unit))
            for epsilon, cell in found.items():
                model = private.TweedieRegressor(power=chosen.power, epsilon=epsilon, delta=1e-6).fit(rows[train], targets[train])
                cell.append((model.score(rows[test], targets[test]), float(model.predict(rows[test]).mean() / targets[test].mean())))
        cells = [[f"{np.mean(one):.3f} ± {half_width(list(one)):.3f}" for one in zip(*cell, strict=True)] for cell in found.values()]
        table.add_row(chosen.name, f"{np.mean(plain):.3f}", *(", ".join(cell) for cell in cells))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()

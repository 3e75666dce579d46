"""Poisson-sampled Gaussian steps against dp_accounting in one run: Rényi curves of many noise levels, and discretised privacy losses.

    python benchmarks/sampled_gaussian_speed.py [LEVELS]

Rényi curves at the same orders; the rival composes 40 levels, because 10 000 take it minutes, and its time is divided by 40. Privacy
losses on the same grid, by turns, the median of five; beside them the time of an epsilon at 1e-5, which is for the most part composition.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, rdp
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from rich.console import Console
from rich.table import Table

from lethe.calculus.privacy_losses.distributions import compose_losses
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_factors
from lethe.calculus.sampled.profiles import SampledStep, step_losses
from lethe.calculus.sampled.renyi import ORDERS, Relation, renyi_values

PROBABILITY, RIVAL_LEVELS, REPEATS = 0.01, 40, 5
# Probability, noise, steps, and about the interval that the composition takes for them.
LOSSES = [(1 / 32, 1.0, 200, 1e-4), (0.001, 0.8, 100_000, 2.2e-5), (1 / 32, 3.0, 10, 7.5e-4)]


def _median(work: Callable[[], object], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _rival(noise: np.ndarray) -> None:
    accountant = rdp.RdpAccountant(list(ORDERS))
    for level in noise:
        accountant.compose(dp_accounting.PoissonSampledDpEvent(PROBABILITY, dp_accounting.GaussianDpEvent(float(level))))


def _epsilon(probability: float, noise: float, steps: int, relation: Relation) -> float:
    mechanism = SampledGaussian(sampling_probability=probability, noise=(noise,), counts=(steps,), relation=relation, design="poisson")
    factors = sampled_factors(mechanism)
    profile = None if factors is None else compose_losses(factors)
    assert profile is not None
    return profile.epsilon(1e-5)


def _losses_table() -> Table:
    table = Table(title="privacy losses of one step on the grid of its run")
    for column in ("q, noise, steps", "relation", "seconds", "dp_accounting", "ratio", "epsilon"):
        table.add_column(column, justify="right")
    relations: dict[Relation, NeighboringRelation] = {
        "zero_out": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }
    for probability, noise, steps, interval in LOSSES:
        for relation, neighbours in relations.items():
            ours = partial(step_losses, [SampledStep(probability, noise, relation, "poisson")], interval, 1e-23)
            rival = partial(
                from_gaussian_mechanism,
                noise,
                value_discretization_interval=interval,
                sampling_prob=probability,
                neighboring_relation=neighbours,
            )
            turns = [(_median(ours, 1), _median(rival, 1)) for _ in range(REPEATS)]
            mine, other = (statistics.median(times) for times in zip(*turns, strict=True))
            whole = _median(partial(_epsilon, probability, noise, steps, relation), REPEATS)
            case = f"{probability:g}, {noise:g}, {steps}"
            table.add_row(case, relation, f"{mine:.4f}", f"{other:.3f}", f"{other / mine:.0f}", f"{whole:.3f}")
    return table


def main() -> None:
    """Print the tables."""
    levels = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    table = Table(title=f"{levels} distinct noise levels, q = {PROBABILITY}, {len(ORDERS)} orders")
    for column in ("noise", "seconds", "dp_accounting, seconds a level", "times faster, per level"):
        table.add_column(column, justify="right")
    for low, high in ((0.5, 2.0), (1.0, 5.0), (5.0, 100.0)):
        noise = np.linspace(low, high, levels)
        ours = _median(lambda noise=noise: renyi_values(PROBABILITY, noise, "zero_out", "poisson"), REPEATS)
        rival = _median(lambda noise=noise: _rival(noise[:: max(1, levels // RIVAL_LEVELS)][:RIVAL_LEVELS]), 3) / min(levels, RIVAL_LEVELS)
        table.add_row(f"{low:g} to {high:g}", f"{ours:.2f}", f"{rival:.4f}", f"{rival * levels / ours:.0f}")
    Console().print(table)
    Console().print(_losses_table())


if __name__ == "__main__":
    main()

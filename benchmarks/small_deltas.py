"""Epsilon at deltas from 1e-5 down to 1e-15 of runs that release every iterate, beside dp_accounting's losses and Rényi curves.

    python benchmarks/small_deltas.py [CASE ...]

The rival's best is the smaller epsilon of its two accountants at their own settings, for the same neighbouring relation. For batches of
fixed size it has Rényi curves only, for noise of the distance of two sums: half the noise multiplier where a record is replaced.
Below 1e-12 its transforms lose as much as delta, in either direction: there its privacy losses may also be below the truth.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, pld, rdp
from rich.console import Console
from rich.table import Table

import lethe
from lethe.run.batches import Poisson, WithoutReplacement
from lethe.run.participation import Neighbours

DELTAS = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15)


class Case(NamedTuple):
    """A run, with its noise multipliers as pairs of a level and its number of steps."""

    records: int
    batches: Poisson | WithoutReplacement
    noise: Sequence[tuple[float, int]]
    neighbours: Neighbours = "zero_out"

    def run(self) -> lethe.Run:
        """The description that Lethe certifies."""
        levels = [level for level, count in self.noise for _ in range(count)]
        return lethe.Run(
            records=self.records,
            batches=self.batches,
            steps=len(levels),
            step_size=1.0,
            clip_norm=1.0,
            noise_multiplier=lethe.schedules.Explicit(tuple(levels)),
            release="all",
            neighbours=self.neighbours,
        )


def schedule(first: float, last: float, levels: int, count: int) -> list[tuple[float, int]]:
    """Noise that changes evenly, `count` steps at each level."""
    return [(level, count) for level in np.linspace(first, last, levels).tolist()]


CASES: dict[str, Case] = {
    "a million records": Case(10**6, lethe.batches.Poisson(1000), [(2.0, 1000)]),
    "small share": Case(750_000, lethe.batches.Poisson(250), [(4.0, 10_000)]),
    "small share, fixed size": Case(750_000, lethe.batches.WithoutReplacement(250), [(4.0, 10_000)], "replace_one"),
    "a record in a billion": Case(10**9, lethe.batches.Poisson(1), [(1.0, 1000)]),
    "hardly any noise": Case(100_000, lethe.batches.Poisson(1000), [(0.1, 1000)]),
    "ordinary": Case(60_000, lethe.batches.Poisson(600), [(1.0, 2000)]),
    "ordinary, replace one": Case(60_000, lethe.batches.Poisson(600), [(2.0, 2000)], "replace_one"),
    "ordinary, fixed size": Case(60_000, lethe.batches.WithoutReplacement(600), [(4.0, 2000)], "replace_one"),
    "much noise": Case(60_000, lethe.batches.Poisson(6000), [(20.0, 300)]),
    "many steps": Case(10**6, lethe.batches.Poisson(1000), [(0.8, 100_000)]),
    "one step": Case(1000, lethe.batches.Poisson(20), [(1.0, 1)]),
    "schedule of 8 levels": Case(60_000, lethe.batches.Poisson(600), schedule(0.8, 1.5, 8, 200)),
    "schedule of 100 levels": Case(60_000, lethe.batches.Poisson(600), schedule(0.8, 1.5, 100, 10)),
    "schedule, fixed size": Case(60_000, lethe.batches.WithoutReplacement(600), schedule(3.0, 6.0, 8, 200), "replace_one"),
}


def rivals(case: Case) -> tuple[pld.PLDAccountant | None, rdp.RdpAccountant]:
    """The rival's accountants of the case, composed; the first is None where it has none."""
    replaced, fixed = case.neighbours == "replace_one", isinstance(case.batches, lethe.batches.WithoutReplacement)
    events = list[dp_accounting.DpEvent]()
    for level, count in case.noise:
        gaussian = dp_accounting.GaussianDpEvent(0.5 * level if fixed else level)
        event = (
            dp_accounting.SampledWithoutReplacementDpEvent(case.records, case.batches.size, gaussian)
            if fixed
            else dp_accounting.PoissonSampledDpEvent(case.batches.size / case.records, gaussian)
        )
        events.append(dp_accounting.SelfComposedDpEvent(event, count))
    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.REPLACE_SPECIAL
    composed = dp_accounting.ComposedDpEvent(events)
    losses = None if fixed else pld.PLDAccountant(relation).compose(composed)
    # Its Rényi curves of Poisson batches are for a record left out: below what one replaced costs, so never the smaller of two bounds.
    curves = rdp.RdpAccountant(neighboring_relation=relation if fixed else NeighboringRelation.REPLACE_SPECIAL)
    return losses, curves.compose(composed) if fixed or not replaced else rdp.RdpAccountant()


def rival_epsilons(case: Case) -> list[tuple[float, float]]:
    """Epsilons of privacy losses and of Rényi curves at `DELTAS`; infinity where the rival has none."""
    losses, curves = rivals(case)
    poisson_replaced = losses is not None and case.neighbours == "replace_one"
    return [
        (
            np.inf if losses is None else float(losses.get_epsilon(delta)),
            np.inf if poisson_replaced else float(curves.get_epsilon(delta)),
        )
        for delta in DELTAS
    ]


def main() -> None:
    """Print a table a case."""
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        start = time.perf_counter()
        ours = [lethe.certify(case.run(), delta=delta, allow_large_delta=True).epsilon for delta in DELTAS]
        middle = time.perf_counter()
        theirs = rival_epsilons(case)
        title = f"{name}: Lethe {middle - start:.2f} s, dp_accounting {time.perf_counter() - middle:.2f} s"
        table = Table("delta", "Lethe", "privacy losses", "Rényi", "Lethe / best", title=title)
        for delta, epsilon, (losses, curve) in zip(DELTAS, ours, theirs, strict=True):
            best = min(losses, curve)
            ratio = f"{epsilon / best:.4f}" if best > 0.0 else "-"
            table.add_row(f"{delta:g}", f"{epsilon:.6g}", f"{losses:.6g}", f"{curve:.6g}", ratio)
        Console(width=100).print(table)


if __name__ == "__main__":
    main()

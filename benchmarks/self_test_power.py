"""How often the self-test fails a trainer that is broken, and one that is sound.

`python benchmarks/self_test_power.py [NAME...]` prints one row for each line of the self-test of those names, or of all. `--audits` of
each, 60 by default: if all of 60 catch a fault, the chance is at least .95 at a confidence of 95 %. `--runs` in each world, by default the
self-test's, with which an audit of a linear trainer takes half a second on one core, one of a network seven. `--seed` of the first; the
default is not one that the games were tuned with.

"Found" is the least epsilon that any audit of a broken trainer proved, and the largest of a sound one: how near it came to what is
stated.
"""

from __future__ import annotations

import argparse

from lethe.audit.trainers.fault_cases import Case, cases
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lethe.audit.page import AuditPage
from lethe.audit.statistics.counts import clopper_pearson_lower, clopper_pearson_upper

_ERRORS = Console(stderr=True)


def row(case: Case, pages: list[AuditPage]) -> tuple[str, ...]:
    """The cells of one line."""
    audits, failed = len(pages), sum(page.failed for page in pages)
    chance = (
        f"at most {clopper_pearson_upper(failed, audits, 0.05):.3f}"
        if case.broken is None
        else f"at least {clopper_pearson_lower(failed, audits, 0.05):.3f}"
    )
    claim, found = pages[0].claim, [page.strongest.epsilon for page in pages if page.strongest is not None]
    worst = "no independent trainings" if not found else f"{max(found) if case.broken is None else min(found):.2f}"
    return case.name, case.expected, f"{failed} of {audits}", chance, "-" if claim is None else f"{claim.epsilon:.2f}", worst


def main() -> None:
    """Print one row for each line of the self-test."""
    lines = {case.name: case for case in cases()}
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(lines), metavar="NAME")
    parser.add_argument("--audits", type=int, default=60)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=20261121)
    asked = parser.parse_args()
    table = Table("line", "expected", "failed", "its chance, at confidence 95 %", "stated", "found")
    for case in (lines[name] for name in asked.names):
        seeds = track(range(asked.seed, asked.seed + asked.audits), description=case.name, console=_ERRORS)
        cells = row(case, [case.played(runs=asked.runs, seed=seed, workers=1)[0] for seed in seeds])
        table.add_row(*cells)
        _ERRORS.print(" | ".join(cells))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

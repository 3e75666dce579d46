"""How often an audit catches a trainer that is broken, and accuses one that is sound.

`python benchmarks/self_test_power.py [NAME...]` prints one row for each trainer of those names in tests/support/planted_faults.py, or for
all. `--audits` of each, 60 by default: if all of 60 catch a fault, the chance is at least .95 at a confidence of 95 %. `--runs` in each
world: by default an audit of a linear trainer takes half a second on one core, one of a network seven. `--seed` of the first; the default
is not one that the games were tuned with.

"Found" is the least epsilon that any audit of a broken trainer proved, and the largest of a sound one: how near it came to what is stated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lethe.audit.page import AuditPage
from lethe.audit.statistics.counts import clopper_pearson_lower, clopper_pearson_upper

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from planted_faults import Case, cases  # pyright: ignore[reportMissingImports]

_ERRORS = Console(stderr=True)


def row(name: str, case: Case, pages: list[AuditPage]) -> tuple[str, ...]:
    """The cells of one line."""
    audits, failed = len(pages), sum(page.failed for page in pages)
    chance = (
        f"at least {clopper_pearson_lower(failed, audits, 0.05):.3f}"
        if case.broken
        else f"at most {clopper_pearson_upper(failed, audits, 0.05):.3f}"
    )
    claim, found = pages[0].claim, [page.strongest.epsilon for page in pages if page.strongest is not None]
    worst = "no independent trainings" if not found else f"{min(found) if case.broken else max(found):.2f}"
    expected = "caught" if case.broken else "quiet"
    return name, expected, f"{failed} of {audits}", chance, "-" if claim is None else f"{claim.epsilon:.2f}", worst


def main() -> None:
    """Print one row for each trainer."""
    lines = cases()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(lines), metavar="NAME")
    parser.add_argument("--audits", type=int, default=60)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=20261121)
    asked = parser.parse_args()
    table = Table("line", "expected", "failed", "its chance, at confidence 95 %", "stated", "found")
    for name in asked.names:
        seeds = track(range(asked.seed, asked.seed + asked.audits), description=name, console=_ERRORS)
        cells = row(name, lines[name], [lines[name].played(runs=asked.runs, seed=seed) for seed in seeds])
        table.add_row(*cells)
        _ERRORS.print(" | ".join(cells))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

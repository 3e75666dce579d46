"""How often the self-test fails a trainer that is broken, and one that is sound.

    python benchmarks/self_test_power.py [SEEDS [NAME...]]

60 audits of each line of the linear trainer by default, ten minutes on one core: if all of 60 catch a fault, the chance is at least .95 at
a confidence of 95 %. Names of other lines can be given; one audit of a network takes about ten seconds.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lethe.audit.intervals import clopper_pearson_lower, clopper_pearson_upper
from lethe.auditing.fault_cases import cases


def main() -> None:
    """Print one row for each line of the self-test."""
    seeds, names = int(sys.argv[1]) if len(sys.argv) > 1 else 60, sys.argv[2:]
    chosen = [case for case in cases() if (case.name in names if names else case.trainer == "fit_linear")]
    table = Table("line", "expected", "failed", "its chance, at confidence 95 %", title=f"{seeds} audits each")
    for case in chosen:
        audits = [case.played(runs=None, seed=100 + seed, workers=1)[0] for seed in track(range(seeds), description=case.name)]
        failed = sum(page.failed for page in audits)
        chance = (
            f"at most {clopper_pearson_upper(failed, seeds, 0.05):.3f}"
            if case.broken is None
            else f"at least {clopper_pearson_lower(failed, seeds, 0.05):.3f}"
        )
        table.add_row(case.name, "quiet" if case.broken is None else "caught", f"{failed} of {seeds}", chance)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

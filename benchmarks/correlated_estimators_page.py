"""The table of estimators that release every iterate, from the file of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from private_linear_summary import half_width
from resumable import read_lines

RESULTS = Path(__file__).with_name("results") / "correlated_estimators.jsonl"
EPSILONS, DELTA = (0.5, 1.0, 2.0), 1e-5
SETS = ("digits", "MNIST 4000")
METHODS: dict[str, dict[str, Any]] = {
    "`auto`, every iterate": {"release": "all"},
    "`correlated`, 20 passes, every iterate": {"release": "all", "mechanism": "correlated", "passes": 20, "whiten": True},
    "`cyclic` (independent noise), 20 passes, every iterate": {"release": "all", "mechanism": "cyclic", "passes": 20, "whiten": True},
    "`poisson`, 20 passes, every iterate": {"release": "all", "mechanism": "poisson", "passes": 20, "whiten": True},
    "`pass_ends`, last iterate": {"mechanism": "pass_ends"},
    "`pass_ends`, last iterate, `whiten=True`": {"mechanism": "pass_ends", "whiten": True},
}
RIVAL = "not by the rule: banded Toeplitz, clipped, tuned on the test records, every iterate"


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for data in SETS:
        for method in (*METHODS, RIVAL):
            cells = [data, method]
            for epsilon in EPSILONS:
                found = [row for row in rows if (row["data"], row["method"], row["epsilon"]) == (data, method, epsilon)]
                if len(found) < 2:
                    cells.append("not measured yet")
                    continue
                scores, shape = [row["accuracy"] for row in found], found[0]
                by = f"{shape['mechanism']}, " if method.startswith("`auto`") else ""
                of = f", mean of {shape['averaged']}" if shape["averaged"] > 1 else ""
                clip = f", clip {shape['clip']:g}" if "clip" in shape else ""
                run = f"{by}{shape['passes']} x {shape['batches']}{clip}, step {shape['step_size']:.3g}{of}"
                cells.append(f"{statistics.fmean(scores):.3f} ± {half_width(scores):.3f} ({run})")
            yield f"| {' | '.join(cells)} |"


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row a set of data and method.

    Args:
        rows: of the file; None: those that are stored.
    """
    head = f"| data | mechanism, what is released | {' | '.join(f'epsilon {epsilon:g}' for epsilon in EPSILONS)} |"
    return "\n".join([head, "|---|---|---|---|---|", *_lines(read_lines(RESULTS) if rows is None else rows)])

"""How close audits come to Lethe's own certificates, and whether any goes above one.

`python benchmarks/audit_certificates.py [NAME...]` prints Markdown, the table of docs/audit.md: the games of those names, or all. `--runs`
trainings in each world, 3000 by default, half of that of networks, which take most of a quarter of an hour on one core. `--seed`: the
default is not one that the games were tuned with. The same scores are judged at two delta. At 1e-5 counting errors proves little of what
there is; at 0.05 it finds most.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from decimal import ROUND_FLOOR, Context

import torch
from certificate_games import GAMES, NETWORKS
from rich.progress import track

from lethe.audit.page import AuditPage

DELTAS = (0.05, 1e-5)


def row(name: str, pages: list[AuditPage], theorem: str, seconds: float) -> str:
    """One line: certificate, certified audit and their ratio at each delta; the conditional one at the second."""
    cells: list[str] = []
    for page in pages:
        claim, found = page.claim, page.strongest
        assert claim is not None
        epsilon = math.nan if found is None else found.epsilon
        cells += [f"{claim.epsilon:.3g}", _down(epsilon), f"{epsilon / claim.epsilon:.2f}"]
    conditional = next((audit.epsilon for audit in pages[-1].audits if audit.kind == "conditional"), math.nan)
    worst = next((page.verdict for page in pages if page.failed), "consistent")
    return f"| {' | '.join([name, theorem, *cells, _down(conditional), worst, f'{seconds:.0f}'])} |"


def main() -> None:
    """Play the games asked for; exit status 1 if a certificate is refuted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(GAMES), metavar="NAME")
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=20261121)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [f"{what}, delta = {delta:g}" for delta in DELTAS for what in ("certified", "audited", "ratio")]
    titles = ["trainer", "certificate by", *pairs, "if Gaussian", "verdict", "seconds"]
    lines, failed = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"], False
    for name in track(asked.names, description="auditing"):
        start = time.perf_counter()
        game = GAMES[name](1.0)
        runs = asked.runs // 2 if name in NETWORKS else asked.runs
        pages = game.pages(DELTAS, runs=runs, seed=asked.seed)
        failed = failed or any(page.failed for page in pages)
        lines.append(row(name, pages, game.theorem, time.perf_counter() - start))
        print(lines[-1], file=sys.stderr, flush=True)
    print("\n".join(lines))
    sys.exit(failed)


def _down(value: float) -> str:
    return "-" if math.isnan(value) else f"{float(Context(prec=3, rounding=ROUND_FLOOR).create_decimal(repr(value))):.3g}"


if __name__ == "__main__":
    main()

"""The five papers that Lethe began with: each algorithm, theorem, figure and table, where it is here, and what is corrected."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

PAPERS = {
    "hong": "Hong, Wang, Zhou 2022, Dynamic privacy budget allocation improves data efficiency of DP gradient descent, FAccT",
    "kong24": "Kong, Ribero 2024, Privacy of the last iterate in cyclically-sampled DP-SGD, arXiv:2407.05237, first version",
    "kong25": "Kong, Ribero 2025, the same, revised version",
    "liang": "Liang, Zhang, He, Wu, Xing 2025, DP-SGD with bounded domain and smooth losses, arXiv:2502.17772",
    "lowy": "Lowy, Razaviyayn 2023, Private stochastic optimization with large worst-case Lipschitz parameter, arXiv:2209.07403",
}
"""What each is, by the key that its rows have."""

NOT_BUILT = "not built: "


class Item(NamedTuple):
    """A numbered part of a paper: a row of `data/five_papers.csv`.

    Args:
        paper: a key of PAPERS.
        numbers: as the paper numbers it.
        says: what it says.
        places: dotted names of what implements it, separated by spaces; or NOT_BUILT and the reason.
        corrected: how ours differs from what is printed; empty if it does not.
        run: what computes or tests it: `lethe reproduce NAME`, or the path of a test; empty of what is not built.
        seconds: CPU seconds of `run`, one thread, start included, rounded up; empty: docs/reproduce.md says, and it was not measured again.
    """

    paper: str
    numbers: str
    says: str
    places: str
    corrected: str
    run: str
    seconds: str

    @property
    def built(self) -> bool:
        """Whether there is something of it here."""
        return not self.places.startswith(NOT_BUILT)

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names among `places`."""
        return tuple(re.findall(r"\blethe(?:_experiments)?(?:\.\w+)+", self.places))


def papers_items() -> tuple[Item, ...]:
    """All rows, in the order of the papers."""
    with (Path(__file__).parent / "data" / "five_papers.csv").open(newline="") as file:
        return tuple(Item(**row) for row in csv.DictReader(file))


def papers_tables() -> str:
    """A heading and a table for each paper, as Markdown."""
    sections = []
    for key, title in PAPERS.items():
        lines = [f"## {title}", "", "| | what | where | corrected | run | seconds |", "|---|---|---|---|---|---:|"]
        for item in papers_items():
            if item.paper == key:
                where = "<br>".join(f"`{name}`" for name in item.names) if item.built else item.places
                run = item.run if item.run.startswith("lethe") else f"pytest {item.run}"
                how = f"`{run}` | {item.seconds or 'not measured again'}" if item.built else "- | -"
                lines.append(f"| {item.numbers} | {item.says} | {where} | {item.corrected or '-'} | {how} |")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)

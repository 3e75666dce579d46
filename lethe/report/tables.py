"""Tables for people, from data computed elsewhere."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from lethe.calculus.shown import shown
from lethe.certificate import Certificate


def comparison_table(certificate: Certificate) -> Table:
    """One line a theorem: epsilon, status, deciding reason; the one used first."""
    table = Table(title=f"every theorem at delta = {certificate.delta:g}")
    for column in ("theorem", "epsilon", "status", "why"):
        table.add_column(column, justify="right" if column == "epsilon" else "left", overflow="fold")
    table.add_row(certificate.theorem, _epsilon(certificate.epsilon), "used", "the smallest that applies", style="bold")
    for other in sorted(certificate.others, key=lambda other: float("inf") if other.epsilon is None else other.epsilon):
        table.add_row(other.theorem, _epsilon(other.epsilon), other.status, other.why)
    return table


def demo_table(content: dict[str, Any]) -> Table:
    """The demo's table: one line a way of batching and accounting."""
    table = Table(title=content["title"])
    for column in ("", "batches and accounting", "noise z", "epsilon", "test accuracy", "seeds: lowest to highest"):
        table.add_column(column, justify="left" if column in ("", "batches and accounting") else "right", overflow="fold")
    for row in content["rows"]:
        table.add_row(
            row["letter"],
            row["label"],
            "-" if row["noise_multiplier"] is None else f"{row['noise_multiplier']:.4g}",
            _epsilon(row["epsilon"]),
            f"{row['accuracy_mean']:.3f} ± {row['accuracy_std']:.3f}",
            f"{row['accuracy_min']:.3f} to {row['accuracy_max']:.3f}",
        )
    return table


def _epsilon(epsilon: float | str | None) -> str:
    return "-" if epsilon is None else shown(float(epsilon))

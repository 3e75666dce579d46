"""describe: a private summary of a table before ranges are chosen: missing entries, quantiles, histograms, counts of categories.

Called by users before a fit, since looking at a private table by hand is a release that nobody counts. The counts come from
`lethe.mechanisms`, are paid from a budget or a ledger, and come with one joint `Statement`.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.domains import outside, require_count
from lethe.certificates.statement import Statement
from lethe.errors.names import in_other_words
from lethe.estimators.budget import paid, whole_budget
from lethe.mechanisms.base import Array, gaussian_noise_std, joint
from lethe.mechanisms.bounded_sums import noisy_sums, sums_sensitivity
from lethe.mechanisms.quantiles.histogram_quantiles import quantiles_of
from lethe.mechanisms.quantiles.located_quantiles import (
    ColumnsInMemory,
    counts_between,
    histogram_sensitivity,
    located_quantiles,
    noisy_counts,
)
from lethe.run.run import Neighbours

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_TAIL, _MISSING, _RANGES = 0.01, 0.1, 0.4  # beyond a range that is found; of the squared mu for gaps and for ranges: the rest is for counts


class ColumnDescription(NamedTuple):
    """A column as it was released; of words without a list, and of numbers whose range was not found, the share missing alone."""

    missing: float
    range: tuple[float, float] | None = None  # given, or released: about 1 % of the records lie beyond each end
    quantiles: Mapping[float, float] = {}  # by share of the records
    counts: Mapping[str, float] = {}  # with noise, by bin or category


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Description:
    """What `describe` released.

    Args:
        columns: by name: missing, range, quantiles, counts.
        statement: what all of it cost.
    """

    columns: Mapping[str, ColumnDescription]
    statement: Statement

    def __repr__(self) -> str:
        lines = list[str]()
        for name, (missing, _, quantiles, counts) in self.columns.items():
            figures = {f"{share:.0%}": value for share, value in quantiles.items()} or counts
            words = ", ".join(f"{label} {value:.4g}" for label, value in figures.items()) or "give its range, or its categories"
            lines.append(f"{name}: missing {missing:.1%}; {words}")
        return "\n".join([*lines, repr(self.statement)])


@in_other_words
def describe(
    table: Any,
    epsilon: float,
    *,
    delta: float | None = None,
    neighbours: Neighbours = "zero_out",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    bins: int = 40,
    ledger: Any = None,
    generator: np.random.Generator | None = None,
) -> Description:
    r"""Describe the d columns of a private table within $(\epsilon, \delta)$, by counts with Gaussian noise alone.

    One record moves gaps by at most $\sqrt d$, histograms by $\sqrt d$, or $\sqrt{2d}$ replaced. Names, types, n and arguments are public.

    Args:
        table: a frame, or an array of shape (n, d), whose columns are called "0", "1" and so on.
        epsilon: > 0.
        delta, neighbours, ledger, generator: as of `private_score`.
        ranges: (low, high) of columns of numbers, where everybody knows them; others are found by counts over powers of two.
        categories: the public list of a column's categories; an entry that is in none counts as "others".
        bins: of a column's histogram within its range, from 2 to 200.
    Raises:
        InputError: a name that is no column of that kind, or a number out of its range.
    """
    named = {str(name): table[name] for name in table.columns} if hasattr(table, "columns") else dict(enumerate(np.asarray(table).T))
    columns = {str(name): np.asarray(column) for name, column in named.items()}
    listed, wide = dict(categories or {}), require_count("bins", bins, low=2, high=200)
    kinds = {str(name): getattr(column.dtype, "kind", None) or np.asarray(column).dtype.kind for name, column in named.items()}
    known_ranges = {name: (float(low), float(high)) for name, (low, high) in (ranges or {}).items()}
    numeric = [name for name, kind in kinds.items() if kind in "iufb" and name not in listed]
    if (
        not columns
        or not {*known_ranges} <= {*numeric}
        or not {*listed} <= {*columns}
        or any(not -math.inf < low < high < math.inf for low, high in known_ranges.values())
    ):
        raise outside(
            "ranges and categories", [*known_ranges, *listed], f"columns among {[*columns]}, of numbers with finite low < high for a range"
        )
    gaps = {name: _gaps(column) for name, column in columns.items()}
    numbers = {name: np.where(gaps[name] > 0.0, np.nan, columns[name]).astype(np.float64) for name in numeric}
    records, unknown = len(next(iter(gaps.values()))), [name for name in numeric if name not in known_ranges]
    budget = whole_budget(epsilon, delta, records, neighbours)
    settle = paid(ledger, budget.planned("a private description", records), seeded=generator is not None)
    noise: dict[str, Any] = {"neighbours": neighbours, "generator": generator}
    std = gaussian_noise_std(sums_sensitivity(len(columns), neighbours), budget.share(_MISSING))
    absent, *statements = noisy_sums(np.stack([*gaps.values()], axis=1), noise_std=std, name="missing entries", **noise)
    if unknown:
        present, share = ColumnsInMemory(np.stack([numbers[name] for name in unknown], axis=1)), budget.share(_RANGES)
        located = located_quantiles(present, tails=(_TAIL, _TAIL), guesses=True, target=share, name="ranges", **noise)
        ends = zip(unknown, located.low.tolist(), located.high.tolist(), located.undetected.tolist(), strict=True)
        known_ranges |= {name: (low, high) for name, low, high, lost in ends if low < high and not lost}
        statements.append(located.statement)
    edges = {name: np.linspace(*ends, wide + 1) for name, ends in known_ranges.items()}
    labels = {
        name: [f"below {edge_array[0]:.6g}", *(f"from {edge:.6g}" for edge in edge_array.tolist())] for name, edge_array in edges.items()
    }
    cells = {name: (labels[name], counts_between(numbers[name], edge_array)) for name, edge_array in edges.items()}
    cells |= {name: _categories(columns[name], listed[name]) for name in listed}
    described = {name: ColumnDescription(min(max(count / records, 0.0), 1.0)) for name, count in zip(columns, absent.tolist(), strict=True)}
    if cells:
        rows = [
            np.pad(cell_counts, (0, max(len(column_counts) for _, column_counts in cells.values()) - len(cell_counts)))
            for _, cell_counts in cells.values()
        ]
        share = budget.share(1.0 - 1e-9 - _MISSING - _RANGES * bool(unknown))
        std = gaussian_noise_std(histogram_sensitivity(len(cells), neighbours), share)
        noisy, statement = noisy_counts(np.stack(rows), noise_std=std, records=records, name="histograms", **noise)
        statements.append(statement)
        for (name, (words, _)), row in zip(cells.items(), noisy, strict=True):
            points = quantiles_of(row[: len(words)], edges[name], SHARES) if name in edges else ()
            quantiles, counts = dict(zip(SHARES, points, strict=False)), dict(zip(words, row.tolist(), strict=False))
            described[name] = ColumnDescription(described[name].missing, known_ranges.get(name), quantiles, counts)
    whole = joint(statements, name=f"a description of {len(columns)} columns")
    whole = replace(whole, records=records, target_delta=budget.delta, release_id=secrets.token_hex(16))
    if settle is not None:
        settle(whole)
    return Description(columns=described, statement=whole)


def _gaps(column: np.ndarray[Any, Any]) -> Array:
    """1 where an entry is missing, of whatever type, else 0."""
    absent = (entry is None or (not isinstance(entry, str) and str(entry) in ("nan", "<NA>", "NaT")) for entry in column.tolist())
    return np.fromiter(absent, dtype=np.float64, count=len(column))


def _categories(column: np.ndarray[Any, Any], vocabulary: Sequence[Any]) -> tuple[list[str], Array]:
    indices = {category: index for index, category in enumerate(dict.fromkeys(vocabulary))}
    codes = [indices.get(entry, len(indices)) for entry in column.tolist()]
    return [*map(str, indices), "others"], np.bincount(codes, minlength=len(indices) + 1).astype(np.float64)

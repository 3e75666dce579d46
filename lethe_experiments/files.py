"""A reproduction as the files of a folder: its data, a table for spreadsheets, a plot."""

from __future__ import annotations

import csv
import io

from lethe.documents.strict import to_json
from lethe_experiments.base import Cell, Reproduction
from lethe_experiments.pages.reproduction_plots import reproduction_plot


def reproduction_files(reproduction: Reproduction) -> dict[str, bytes]:
    """NAME.json, NAME.csv and NAME.png."""
    content = reproduction.to_dict()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(reproduction.columns)
    writer.writerows([_written(cell) for cell in row] for row in reproduction.rows)
    name = reproduction.name
    return {
        f"{name}.json": to_json(content).encode(),
        f"{name}.csv": text.getvalue().encode(),
        f"{name}.png": reproduction_plot(content),
    }


def _written(cell: Cell) -> str | int:
    """Floats as their shortest exact form; truth as yes and no."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else repr(cell) if isinstance(cell, float) else cell

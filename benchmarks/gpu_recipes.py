"""The first steps of each recipe of examples/recipes, with random weights: time of a step, memory, hours of the whole."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.table import Table

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "recipes"
RECIPES = sorted(path for path in FOLDER.glob("*.py") if "parse(__doc__" in path.read_text())
SECONDS = 300


def recipes_table(steps: int, *, cpu: bool) -> tuple[Table, list[str]]:
    """A row for each recipe, and the names of those that failed or took more than `SECONDS`; with `cpu` of their small size."""
    size, failed = "small" if cpu else "random", list[str]()
    table = Table(title=f"{steps} steps of each recipe, --size {size}")
    for column in ("recipe", "seconds a step", "GiB", "hours of the whole", "epsilon of these steps"):
        table.add_column(column, justify="left" if column == "recipe" else "right")
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder, "results.json")
            command = [sys.executable, str(recipe), "--size", size, "--steps", str(steps), "--json", str(results)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
                problem = (done.stderr.strip().splitlines() or ["no error was printed"])[-1] if done.returncode else ""
            except subprocess.TimeoutExpired:
                problem = f"took more than {SECONDS} s"
            if problem:
                failed.append(recipe.stem)
                table.add_row(recipe.stem, problem)
                continue
            cost = json.loads(results.read_text())
        numbers = ("seconds_per_step", "gibibytes", "hours", "epsilon")
        table.add_row(recipe.stem, *(f"{cost[name]:.3g}" for name in numbers))
    return table, failed

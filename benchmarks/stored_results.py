"""What is stored of long benchmarks: the command that made each file, the code it was made by, and one number of it computed again.

    python benchmarks/stored_results.py [NAME ...] [--data FOLDER]

computes the cells of these files, or of all, again: the benchmark goes on from a copy of its file that lacks the cell. FOLDER has
mnist.npz; without it, cells that need MNIST are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from resumable import read_lines

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Row = dict[str, Any]

_PLANS = ("lethe/run", "lethe/calculus", "lethe/theorems", "lethe/accounting")
_LINEAR = (*_PLANS, "lethe/mechanisms", "lethe/noise_allocation", "lethe/train/linear", "lethe/estimators")
_NETWORKS = (*_PLANS, "lethe/train")
_RECORDS = ("benchmarks/utility_records_data.py", "benchmarks/utility_records_methods.py", *_LINEAR, *_NETWORKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A file of results.

    Args:
        name: of the file, without its folder and its ending.
        script: that makes it.
        arguments: of the command that makes all of it.
        page: of docs/ that shows it.
        sources: files and packages that its numbers depend on.
        cell: what one row has, and no other; empty: none can be computed within minutes.
        numbers: of that row, compared with what the same seed gives now.
        tolerance: relative: 0 where nothing but the seed decides, more where time or memory is measured.
        only: arguments with which the script computes nothing but the cell.
        needs_mnist: whether it cannot be computed without the file.
    """

    name: str
    script: str
    arguments: str = ""
    page: str
    sources: tuple[str, ...]
    cell: Row
    numbers: tuple[str, ...]
    tolerance: float = 0.0
    only: tuple[str, ...] = ()
    needs_mnist: bool = False

    @property
    def command(self) -> str:
        """What makes the whole file."""
        return f"python benchmarks/{self.script} {self.arguments}".rstrip()

    @property
    def file(self) -> Path:
        """Where it is."""
        return RESULTS / f"{self.name}.jsonl"


_ROUNDING, _SEARCHED = 1e-6, 1e-5  # another order of additions; noise that a search ends near
_DRAWS = 0.005  # another noise, which seeds now draw: scores are of 5000 records
_MEASURED = 0.5  # memory
_MNIST = "--data FOLDER/mnist.npz"
STORED = {
    stored.name: stored
    for stored in (
        Stored(
            name="calibration", script="calibration.py", page="probabilities.md",
            sources=("benchmarks/calibration.py", *_LINEAR), numbers=("log_loss", "ratio", "auc"), tolerance=_SEARCHED,
            cell={"data": "normal, 50 %", "mechanism": "pass_ends", "epsilon": 1.0, "seed": 0},
        ),
        Stored(
            name="settings", script="settings.py", arguments=_MNIST, page="choose/clipping.md",
            sources=("benchmarks/settings.py", "benchmarks/settings_tasks.py", *_NETWORKS), numbers=("noise", "step_size", "test"),
            tolerance=_ROUNDING, cell={"unit": {"task": "digits CNN", "how": "left out", "seed": 0}},
        ),
        Stored(
            name="allocation_accuracy", script="allocation_accuracy.py", arguments=_MNIST, page="choose/batches.md",
            sources=("benchmarks/allocation_accuracy.py", *_NETWORKS), numbers=("noise_multiplier", "accuracy"), tolerance=_ROUNDING,
            cell={"task": "digits, 64-32-10", "epsilon": 3.0, "design": "random allocation", "seed": 0, "judged_on": "test"},
        ),
        Stored(
            name="correlated_estimators", script="correlated_estimators.py", arguments=_MNIST, page="measurements/correlated_noise.md",
            sources=("benchmarks/correlated_estimators.py", "benchmarks/correlated_noise.py", *_LINEAR, *_NETWORKS),
            numbers=("accuracy", "passes", "batches", "step_size"), tolerance=_ROUNDING,
            cell={"data": "digits", "method": "`auto`, every iterate", "epsilon": 1.0, "seed": 0},
        ),
        Stored(
            name="correlated_mnist", script="correlated_mnist.py", arguments=f"{_MNIST} --seeds 10",
            page="measurements/correlated_noise.md",
            sources=("benchmarks/correlated_mnist.py", *_NETWORKS), numbers=("noise_multiplier", "accuracies"), tolerance=_DRAWS,
            cell={"kind": "cyclic, correlated noise", "step_size": 1.0, "judged_on": "held out"}, needs_mnist=True,
        ),
        Stored(
            name="domain_diameter", script="domain_diameter.py", page="measurements/liang.md",
            sources=("benchmarks/domain_diameter.py", *_PLANS), numbers=("noise_multiplier", "excess", "accuracy"), tolerance=_ROUNDING,
            cell={"task": "ten digits, 64 pixels", "batches": "cyclic", "steps": 500, "epsilon": 0.5, "share": 1.1},
        ),
        Stored(
            name="hong_figure_1", script="hong_figure_1.py", arguments=_MNIST, page="reproduce.md",
            sources=(
                "benchmarks/hong_figure_1.py", "lethe_experiments/hong/figure_1.py", "lethe_experiments/hong/samples.py",
                "lethe_experiments/hong/two_layer_network.py", "lethe_experiments/risk/noise_schedules.py",
                "lethe/run/schedules/allocation.py", "lethe/train/core/generators.py",
            ),
            numbers=("training_loss", "test_accuracy"), tolerance=_DRAWS, only=("--records", "250"), needs_mnist=True,
            cell={"task": "MNIST35", "records": 250, "steps": 100, "gamma": None, "seed": 0},
        ),
        Stored(
            name="liang_figures", script="liang_figures.py", arguments="--data cifar10_20k.npz --size cpu", page="measurements/liang.md",
            sources=("benchmarks/liang_figures.py", "lethe_experiments/liang", *_NETWORKS), cell={}, numbers=("estimate",),
        ),
        Stored(
            name="heavy_tailed_rivals", script="heavy_tailed_rivals.py", page="solvers.md",
            sources=("benchmarks/heavy_tailed_rivals.py", "benchmarks/heavy_tailed_data.py", "lethe/calculus", "lethe/heavy_tailed"),
            numbers=("score",), tolerance=_ROUNDING,
            cell={"problem": "linear-student", "columns": 10, "records": 10_000, "seed": 0, "method": "sampled_localised"},
        ),
        Stored(
            name="partitioned_tables", script="partitioned_tables.py", arguments="--full", page="measurements/partitions.md",
            sources=("benchmarks/partitioned_tables.py", "lethe/partitions", "lethe/estimators", "lethe/mechanisms"),
            numbers=("memory",), tolerance=_MEASURED, cell={"records": 2_000_000, "which": "adassp"},
        ),
        Stored(
            name="utility_records", script="utility_records.py", arguments="--data FOLDER", page="records.md",
            sources=("benchmarks/utility_records.py", *_RECORDS),
            numbers=("score", "passes"), tolerance=_ROUNDING, cell={"dataset": "digits", "method": "auto", "epsilon": 1.0, "seed": 0},
            only=("--datasets", "digits", "--methods", "auto", "--epsilons", "1", "--seeds", "1"),
        ),
        Stored(
            name="utility_records_memory", script="utility_records_memory.py", arguments="--data FOLDER", page="records.md",
            sources=("benchmarks/utility_records_memory.py", *_RECORDS), numbers=("rows", "beside"), tolerance=_MEASURED,
            cell={"dataset": "digits"}, only=("--datasets", "digits"),
        ),
        Stored(
            name="utility_records_screening", script="utility_records_screening.py", arguments="--data FOLDER", page="records.md",
            sources=("benchmarks/utility_records_screening.py", *_RECORDS), cell={}, numbers=("score",),
        ),
        Stored(
            name="utility_ablation", script="utility_ablation.py", arguments="--data FOLDER", page="records.md",
            sources=("benchmarks/utility_ablation.py", *_RECORDS), cell={}, numbers=("score",),
        ),
    )
}  # fmt: skip
"""Every file of results, by its name."""

TYPED = {
    "distributed.md": ("gpu_check.py",),
    "features.md": ("features_speed.py",),
    "measurements/audit.md": ("audit_certificates.py", "self_test_power.py"),
    "measurements/compare.md": ("published_bounds.py",),
    "measurements/correlated_noise.md": ("correlated_cost.py", "correlated_noise.py"),
    "measurements/estimators.md": (
        "counts_and_costs.py",
        "heavy_tailed_models.py",
        "narrowed_ranges.py",
        "private_linear_models.py",
        "released_ranges.py",
    ),
    "measurements/partitions.md": ("head_memory.py", "partitioned_cluster.py"),
    "measurements/schedules.md": ("noise_schedules.py",),
    "measurements/solvers.md": ("heavy_tailed_models.py", "heavy_tailed_speed.py"),
    "measurements/speed.md": ("finetune_models.py", "finetune_speed.py", "step_cost.py", "training_speed.py"),
    "measurements/training.md": ("embedding_speed.py", "gpu_check.py", "shard_memory.py", "zeroth_order.py"),
    "recipes/index.md": ("gpu_check.py",),
    "reproduce.md": tuple(f"lethe reproduce {name}" for name in ("liang-figure-1", "liang-figure-2", "matrix-mechanisms")),
    "speed.md": ("finetune_speed.py", "training_speed.py"),
    "studio.md": ("studio_speed.py",),
    "tutorials/noise_placement.md": ("noise_schedules.py",),
}
"""By page, the scripts and commands whose numbers are typed into it: no digest is kept of those."""


@cache
def digest(source: str, root: Path = ROOT) -> str:
    """Of the text of a file, or of a package's files and their names."""
    place = root / source
    summed = hashlib.sha256()
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        summed.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return summed.hexdigest()[:16]


def append(file: Path, row: Row) -> None:
    """Add a row to a file of results; with its first row, what it is made by goes into code.json beside it."""
    if not file.is_file() or not file.stat().st_size:
        beside = file.with_name("code.json")
        codes = json.loads(beside.read_text()) if beside.is_file() else {}
        codes[file.stem] = {source: digest(source) for source in STORED[file.stem].sources} if file.stem in STORED else {}
        beside.write_text(json.dumps(codes, indent=1, sort_keys=True) + "\n")
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def changed_sources(name: str) -> list[str]:
    """Those that are not what they were when the oldest rows of the file were made."""
    codes = json.loads((RESULTS / "code.json").read_text())[name]
    return [source for source in dict.fromkeys(STORED[name].sources) if codes.get(source) != digest(source)]


def made_by(name: str) -> str:
    """What a page says under a table: the command, whether the code has changed since its oldest row, and what the night checks."""
    stored, changed = STORED[name], changed_sources(name)
    names = ", ".join(f"`{source.removeprefix('lethe/')}`" for source in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    since = f"before changes in {names}{more}" if changed else "by the code as it is"
    again = f"a row is computed again by night, within {stored.tolerance:g} of it" if stored.cell else "no row is computed again by night"
    return f"*Made by `{stored.command}`, {since}; {again}.*"


def cell_of(stored: Stored, rows: list[Row]) -> Row:
    """The row that is computed again.

    Raises:
        ValueError: it is not exactly one.
    """
    (row,) = (row for row in rows if all(row.get(key) == value for key, value in stored.cell.items()))
    return row


def recomputed(stored: Stored, rows: list[Row], mnist: Path | None = None) -> Row:
    """The same row, by the code as it is: the script goes on from all other rows.

    Args:
        stored: with a cell.
        rows: of its file.
        mnist: the file, of a cell that needs it.
    """
    row = cell_of(stored, rows)
    with TemporaryDirectory() as folder:
        file = Path(folder) / stored.file.name
        file.write_text("".join(json.dumps(other) + "\n" for other in rows if other is not row))
        data = ("--data", str(mnist)) if stored.needs_mnist else ()
        command = [sys.executable, str(ROOT / "benchmarks" / stored.script), *stored.only, *data, "--results", str(file)]
        threads = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=os.environ | threads, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
        return cell_of(stored, read_lines(file)[len(rows) - 1 :])


def differences(stored: Stored, row: Row, again: Row) -> dict[str, tuple[Any, Any]]:
    """The numbers that are farther apart than the tolerance, as stored and as computed again."""
    return {name: (row[name], again[name]) for name in stored.numbers if not _near(row[name], again[name], stored.tolerance)}


def _near(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(_near(*pair, tolerance) for pair in zip(one, other, strict=True))
    return abs(one - other) <= tolerance * min(abs(one), abs(other))


def main() -> None:
    """Compute cells again, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(STORED), choices=list(STORED), metavar="NAME")
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    mnist, wrong = asked.data and asked.data / "mnist.npz", 0
    for stored in (STORED[name] for name in asked.names):
        if not stored.cell or (stored.needs_mnist and mnist is None):
            print(f"{stored.name}: left out")
            continue
        rows = read_lines(stored.file)
        apart = differences(stored, cell_of(stored, rows), recomputed(stored, rows, mnist))
        print(f"{stored.name}: {apart or 'as stored'}", flush=True)
        wrong += bool(apart)
    sys.exit(wrong)


if __name__ == "__main__":
    main()

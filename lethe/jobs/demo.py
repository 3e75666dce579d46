"""`lethe demo`: one model and privacy target, six combinations of batches and accounting, and the accuracy of each.

The command calls `Demo`; it is for people who have not trained privately before.

Every choice is a fixed rule on public quantities: four batches a pass, twenty passes, step size half of 1/smoothness, and gradients
clipped to norm 1, which no record's gradient exceeds at the start from zero (there it is sqrt(1 - 1/classes)). The rule looks at no data,
so on the user's own nothing besides the released weights leaks. Its constants were chosen on the digits, which are public.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field
from rich.console import Console
from rich.progress import Progress

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for, is_large, usual_delta
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.specification import Specification
from lethe.documents.strict import errors_from, read_document, refuse_other_kind, to_json
from lethe.errors import InputError
from lethe.jobs.configuration import Data, refuse_unanswered
from lethe.jobs.datasets import RecordTable, centred_digits, load_table, split
from lethe.jobs.tables.columns import PublicColumns
from lethe.run.batches import Batches, Cyclic, Poisson, ShuffledOnce
from lethe.run.losses import Softmax
from lethe.run.run import NoiseAt, Release, Run
from lethe.train import Linear, TrainOptions, fit

BATCHES_PER_PASS = 4
PASSES = 20
CLIP_NORM = 1.0
PASSES_WITHOUT_PRIVACY = 1000  # without noise, passes cost nothing
TEST_FRACTION = 0.22
FEATURE_NORM = 1.0
FEWEST_RECORDS = 40
_STEP_SIZE = 0.5 / Softmax(feature_norm=FEATURE_NORM).curvature[1]  # 1/(2M)
_SCALE_FIRST = ": divide the columns by their publicly known ranges first, or the longest of them is all that is learned from."
_DIGITS_NOTE = "The rule's constants and the picture that centres the digits were chosen by its authors on these digits, which are public."
# Letter, what it is, batches of a size, where the noise is, and what is released; the last one is without privacy.
_ROWS: tuple[tuple[str, str, Callable[..., Batches], NoiseAt, Release], ...] = (
    ("a", "cyclic, noise calibrated by composition", Cyclic, "every_step", "all"),
    ("b", "cyclic, last iterate", Cyclic, "every_step", "last"),
    ("c", "shuffled once, last iterate", ShuffledOnce, "every_step", "last"),
    ("d", "cyclic, noise at pass ends, last iterate", Cyclic, "pass_ends", "last"),
    ("e", "Poisson DP-SGD, dp_accounting", Poisson, "every_step", "all"),
    ("f", "no privacy", Cyclic, "every_step", "all"),
)
_LETTERS = "".join(letter for letter, *_ in _ROWS)
_FILES = (
    "table.json",
    "accuracy.png",
    *(f"runs/{letter}.json" for letter in _LETTERS),
    *(f"certificates/{letter}.json" for letter in _LETTERS[:-1]),
)


class DemoTable(NamedTuple):
    """The whole table as plain data, and what it rests on."""

    content: dict[str, Any]
    fine_print: str


class Demo(Specification):
    """What will be trained.

    Args:
        data: a file with a table; None: the one that `columns` names, or the digits of scikit-learn.
        target: the column to predict; None: the one that `columns` names, or none of the digits.
        columns: a configuration of `lethe train`, of which columns:, public: and data: are read; None: all columns are numbers.
        epsilon, delta: the privacy target of every private row; delta None: the smaller of 1e-5 and 1/(10 records).
        neighbours: the relation that every row is certified under; the fixed designs exclude add_or_remove.
        seeds: each row is trained with seeds 0..seeds-1; a seed sets the split, the order and the noise.
        allow_large_delta: whether a delta >= 1/records is meant.
    """

    data: Path | None = None
    target: str | None = None
    columns: Path | None = None
    epsilon: float = Field(default=1.0, gt=0)
    delta: float | None = Field(default=None, gt=0, lt=1)
    neighbours: Literal["zero_out", "replace_one"] = "zero_out"
    seeds: int = Field(default=5, ge=1)
    allow_large_delta: bool = False

    def execute(self, folder: Path, plot: Callable[[dict[str, Any]], bytes], *, progress: bool = True) -> DemoTable:
        """Plan, train and certify every row, then write all, and what `plot` draws, to a new folder or a demo's, whole or not at all."""
        require_new_folder(folder, replaceable=_FILES)
        table, notes, scaled = self.load()
        records = len(split(table, TEST_FRACTION, seed=0)[0].features)
        allowed = self.allow_large_delta
        delta = usual_delta(records) if self.delta is None else delta_for(records, self.delta, allow_large_delta=allowed)
        rows: list[dict[str, Any]] = []
        files: dict[str, bytes] = {}
        projected = 0
        with Progress(transient=True, console=Console(stderr=True), disable=not progress) as bar:
            task = bar.add_task("planning", total=len(_ROWS) * self.seeds)
            for letter, label, batches, noise_at, release in _ROWS:
                bar.update(task, description=f"({letter}) {label}")
                private = letter != _LETTERS[-1]
                run = self._run(records, batches, noise_at, release, private=private)
                if private:
                    run = plan(run, self.epsilon, delta, allow_large_delta=True)
                accuracies: list[float] = []
                recorded: list[Run] = []
                for seed in range(self.seeds):
                    train, test = split(table, TEST_FRACTION, seed=seed)
                    options = TrainOptions(seed=seed, progress=False)
                    fitted = fit(Linear(classes=table.classes), None, (train.features, train.targets), run, options=options)
                    accuracies.append(fitted.model.accuracy(test.features, test.targets))
                    recorded.append(fitted.run.replace(seeded=False))
                    projected = fitted.diagnostics.projected
                    bar.advance(task)
                row = {"letter": letter, "label": label, "theorem": None, "noise_multiplier": None, "epsilon": "inf"}
                files[f"runs/{letter}.json"] = to_json(recorded[0].replace(seeded=True).to_document()).encode()
                if private:
                    certificates = [certify(recorded_run, delta, allow_large_delta=True) for recorded_run in dict.fromkeys(recorded)]
                    worst = max(certificates, key=lambda certificate: certificate.epsilon)
                    files[f"certificates/{letter}.json"] = to_json(worst.to_dict()).encode()
                    multiplier = recorded[0].noise_multiplier
                    row |= {"theorem": worst.theorem, "epsilon": worst.epsilon}
                    row["noise_multiplier"] = multiplier if isinstance(multiplier, float) else None
                rows.append(row | _summary(accuracies))
        large = is_large(delta, records)
        content = {
            "title": f"{table.name}: softmax regression, {records} training records, "
            f"({self.epsilon:g}, {delta:g})-DP{', delta >= 1/records' if large else ''}, {self.neighbours}, {self.seeds} seeds",
            "epsilon": self.epsilon,
            "delta": delta,
            **({"large_delta": True} if large else {}),
            "neighbours": self.neighbours,
            "records": records,
            "projected": projected,
            "rows": rows,
        }
        write_folder(folder, {"table.json": to_json(content).encode(), "accuracy.png": plot(content), **files}, replace=True)
        first = _SCALE_FIRST if not scaled and 2 * projected > records else "."
        lines = [
            f"Fixed in advance from public quantities, by a rule that looks at no data: batches of {_batch_size(records)} "
            f"({BATCHES_PER_PASS} a pass), step size {_STEP_SIZE:g} (half of 1/smoothness), clip norm {CLIP_NORM:g}, {PASSES} passes "
            f"({PASSES_WITHOUT_PRIVACY} without privacy).",
            f"Feature vectors longer than {FEATURE_NORM:g} are projected: {projected} of {records} in the last split{first}",
            "(a) and (e) hold even if every iterate is seen; (b), (c), (d) for the last iterate only; (c) and (e) need secret batches.",
            *notes,
            "Noise is seeded here so that the table can be made again, and every epsilon is that of the same run with fresh noise: train "
            "without a seed before you release weights.",
            f"Runs, certificates, table and plot: {folder}/",
        ]
        return DemoTable(content, "\n".join(lines))

    def _run(self, records: int, batches: Callable[..., Batches], noise_at: NoiseAt, release: Release, *, private: bool) -> Run:
        return Run(
            records=records,
            batches=batches(size=_batch_size(records)),
            passes=PASSES if private else PASSES_WITHOUT_PRIVACY,
            step_size=_STEP_SIZE,
            clip_norm=CLIP_NORM if private else None,
            noise_multiplier=None if private else 0.0,
            noise_at=noise_at,
            loss=Softmax(feature_norm=FEATURE_NORM, evidence="enforced"),
            release=release,
            neighbours=self.neighbours,
        )

    def load(self) -> tuple[RecordTable, list[str], bool]:
        """The records, what was taken as public of them, a line each, and whether their columns are known to be scaled."""
        stated, public, section = (None, None, Data()) if self.columns is None else _stated(self.columns)
        path = self.data if self.data is not None or section.path is None else Path(section.path)
        target = self.target if self.target is not None else section.target
        if (path is None) != (target is None) or (self.columns is not None and path is None):
            raise InputError("--data and --target: one is given without the other.", remedy="name the file and the column to predict.")
        if path is None or target is None:
            return centred_digits(), [_DIGITS_NOTE], True
        classes = section.classes or None
        table = load_table(path, target, task="classification", classes=classes, columns=stated)
        if len(table.features) < FEWEST_RECORDS:
            raise InputError(f"{table.name}: {len(table.features)} records; the demo needs at least {FEWEST_RECORDS}.")
        how = "read off the data and are" if classes is None else "stated and are"
        notes = [f"The classes were {how} taken as public: {', '.join(table.class_names)}."]
        if stated is not None:
            source_note = "" if public is None else f" ({public})"
            notes.append(f"Ranges and categories of {len(stated.used)} columns were stated and are taken as public{source_note}.")
        return table, notes, stated is not None


def _summary(accuracies: list[float]) -> dict[str, Any]:
    return {
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "accuracy_min": min(accuracies),
        "accuracy_max": max(accuracies),
        "accuracies": accuracies,
    }


def _batch_size(records: int) -> int:
    return max(1, records // BATCHES_PER_PASS)


def _stated(file: Path) -> tuple[PublicColumns, Any, Data]:
    """Columns, the word on why they are public, and the data section, of a file that `lethe init` wrote."""
    content = read_document(file)
    refuse_other_kind(content, "configuration of `lethe train`", source=str(file))
    with errors_from(file):
        section: dict[str, Any] = {key: content[key] for key in ("data", "columns", "public") if key in content}
        refuse_unanswered(section)
        if "columns" not in section:
            raise InputError(
                "columns: missing; nothing is stated of the columns.",
                remedy="give a configuration of `lethe train`; `lethe init --data FILE --target COLUMN` writes one.",
            )
        # target_range and test_fraction are for `lethe train`
        return PublicColumns.parse(section["columns"]), section.get("public"), Data(**section.get("data", {}))

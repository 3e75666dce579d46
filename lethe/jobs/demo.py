"""`lethe demo`: one model and privacy target, six combinations of batches and accounting, and the accuracy of each.

Every choice is a fixed rule on public quantities: four batches a pass, twenty passes, step size half of 1/smoothness, and gradients
clipped to norm 1, which no record's gradient exceeds at the start from zero (there it is sqrt(1 - 1/classes)). The rule looks at no data,
so on the user's own nothing besides the released weights leaks. Its constants were chosen on the digits, which are public.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for, is_large, usual_delta
from lethe.certificates.certificate import Certificate
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.jobs.datasets import RecordTable, split
from lethe.jobs.own_table import OwnTable, own_table
from lethe.report.plots import demo_plot
from lethe.run.batches import Batches, Cyclic, Poisson, ShuffledOnce
from lethe.run.losses import Softmax
from lethe.run.run import Neighbours, NoiseAt, Release, Run
from lethe.train import Linear, TrainOptions, fit

BATCHES_PER_PASS = 4
PASSES = 20
CLIP_NORM = 1.0
PASSES_WITHOUT_PRIVACY = 1000  # without noise, passes cost nothing
TEST_FRACTION = 0.22
FEATURE_NORM = 1.0
FEWEST_RECORDS = 40
_SCALE_FIRST = ": divide the columns by their publicly known ranges first, or the longest of them is all that is learned from."
_LETTERS = "abcdef"
_FILES = (
    "table.json",
    "accuracy.png",
    *(f"runs/{letter}.json" for letter in _LETTERS),
    *(f"certificates/{letter}.json" for letter in _LETTERS[:-1]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRow:
    """One way to train: where the batches come from, where the noise goes, what is assumed to be released."""

    letter: str
    label: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row trained with every seed.

    Args:
        row: the row.
        run: as training recorded it, seeded.
        certificate: of the same run with fresh noise; None without privacy.
        accuracies: one a seed.
    """

    row: DemoRow
    run: Run
    certificate: Certificate | None
    accuracies: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """The row of the table."""
        multiplier = self.run.noise_multiplier
        return {
            "letter": self.row.letter,
            "label": self.row.label,
            "theorem": None if self.certificate is None else self.certificate.theorem,
            "noise_multiplier": multiplier if self.certificate is not None and isinstance(multiplier, float) else None,
            "epsilon": "inf" if self.certificate is None else self.certificate.epsilon,
            "accuracy_mean": statistics.fmean(self.accuracies),
            "accuracy_std": statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0,
            "accuracy_min": min(self.accuracies),
            "accuracy_max": max(self.accuracies),
            "accuracies": list(self.accuracies),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTable:
    """The whole table."""

    demo: Demo
    results: tuple[Result, ...]
    projected: int
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data."""
        demo = self.demo
        large = is_large(demo.delta, demo.train_records)
        return {
            "title": f"{demo.table.name}: softmax regression, {demo.train_records} training records, "
            f"({demo.epsilon:g}, {demo.delta:g})-DP{', delta >= 1/records' if large else ''}, {demo.neighbours}, {demo.seeds} seeds",
            "epsilon": demo.epsilon,
            "delta": demo.delta,
            **({"large_delta": True} if large else {}),
            "neighbours": demo.neighbours,
            "records": demo.train_records,
            "projected": self.projected,
            "rows": [result.to_dict() for result in self.results],
        }

    def fine_print(self) -> str:
        """What the table rests on."""
        demo = self.demo
        return (
            "Fixed in advance from public quantities, by a rule that looks at no data: "
            f"batches of {demo.batch_size} ({BATCHES_PER_PASS} a pass), step size {demo.step_size:g} (half of 1/smoothness), "
            f"clip norm {CLIP_NORM:g}, {PASSES} passes ({PASSES_WITHOUT_PRIVACY} without privacy).\n"
            f"Feature vectors longer than {FEATURE_NORM:g} are projected: {self.projected} of {demo.train_records} in the last split"
            f"{_SCALE_FIRST if demo.scale_first and 2 * self.projected > demo.train_records else '.'}\n"
            "(a) and (e) hold even if every iterate is seen; (b), (c), (d) for the last iterate only; (c) and (e) need secret batches.\n"
            f"{demo.data_note}"
            "Noise is seeded here so that the table can be made again, and every epsilon is that of the same run with fresh noise: train "
            "without a seed before you release weights.\n"
            f"Runs, certificates, table and plot: {self.folder}/"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What will be trained.

    Args:
        data: the records, and what was taken as public of them.
        epsilon, delta: the privacy target of every private row.
        neighbours: the relation that every row is certified under.
        seeds: each row is trained with seeds 0..seeds-1; a seed sets the split, the order and the noise.
    """

    data: OwnTable
    epsilon: float
    delta: float
    neighbours: Neighbours
    seeds: int

    @classmethod
    def prepare(
        cls,
        *,
        data: Path | None,
        target: str | None,
        columns: Path | None = None,
        epsilon: float,
        delta: float | None,
        neighbours: str,
        seeds: int,
        allow_large_delta: bool = False,
    ) -> Demo:
        """Load the data and check every argument, before anything is trained.

        Args:
            data: a file with a table; None: the digits of scikit-learn.
            target: the column to predict; None with the digits.
            columns: a configuration of `lethe train`, of which columns: and data: are read; None: all columns are numbers.
            epsilon: of every private row.
            delta: None: the smaller of 1e-5 and 1/(10 records).
            neighbours: zero_out or replace_one.
            seeds: trainings of each row, at least 1.
            allow_large_delta: whether a delta >= 1/records is meant.
        Raises:
            InputError: unreadable data, or an argument out of range.
        """
        if neighbours not in ("zero_out", "replace_one"):
            raise InputError(
                f"neighbours: got {neighbours!r}; it needs zero_out or replace_one.", remedy="the fixed designs exclude add_or_remove."
            )
        own = own_table(data, target, columns)
        table = own.table
        if table.classes is None:
            raise InputError(f"{table.name}: the target is a measurement; the demo needs classes.", remedy="choose a column of labels.")
        if seeds < 1:
            raise InputError(f"seeds: got {seeds}; it needs at least 1.")
        if len(table.features) < FEWEST_RECORDS:
            raise InputError(f"{table.name}: {len(table.features)} records; the demo needs at least {FEWEST_RECORDS}.")
        records = _train_records(table)
        chosen = usual_delta(records) if delta is None else delta_for(records, delta, allow_large_delta=allow_large_delta)
        return cls(data=own, epsilon=epsilon, delta=chosen, neighbours=neighbours, seeds=seeds)

    @property
    def data_note(self) -> str:
        """A line on what was taken from data before training: the classes of the user's own, the rule's constants from the digits."""
        if self.data.own:
            return "".join(f"{note}\n" for note in self.data.notes)
        return (
            "The rule's constants and the picture that centres the digits were chosen by its authors on these digits, which are public.\n"
        )

    @property
    def table(self) -> RecordTable:
        """The records."""
        return self.data.table

    @property
    def scale_first(self) -> bool:
        """Whether nothing says that the columns are scaled."""
        return self.data.own and not self.data.stated

    @property
    def train_records(self) -> int:
        """n."""
        return _train_records(self.table)

    @property
    def batch_size(self) -> int:
        """A quarter of the records."""
        return max(1, self.train_records // BATCHES_PER_PASS)

    @property
    def step_size(self) -> float:
        """1/(2M)."""
        return 0.5 / Softmax(feature_norm=FEATURE_NORM).curvature[1]

    def execute(self, folder: Path, *, progress: bool = True) -> DemoTable:
        """Plan, train and certify every row, then write everything to `folder`, whole or not at all.

        Args:
            folder: a new one, or a demo's.
            progress: whether a bar is shown.
        Raises:
            InputError: `folder` exists and is not a demo's, or a parameter is out of range.
        """
        require_new_folder(folder, replaceable=_FILES)
        results: list[Result] = []
        projected = 0
        with Progress(transient=True, console=Console(stderr=True), disable=not progress) as bar:
            rows = self._rows()
            task = bar.add_task("planning", total=len(rows) * self.seeds)
            for row in rows:
                private = row.letter != "f"
                run = plan(row.run, self.epsilon, self.delta, allow_large_delta=True) if private else row.run
                bar.update(task, description=f"({row.letter}) {row.label}")
                accuracies: list[float] = []
                recorded: list[Run] = []
                for seed in range(self.seeds):
                    train, test = split(self.table, TEST_FRACTION, seed=seed)
                    options = TrainOptions(seed=seed, progress=False)
                    trained = fit(Linear(classes=self.table.classes), None, (train.features, train.targets), run, options=options)
                    accuracies.append(trained.model.accuracy(test.features, test.targets))
                    recorded.append(trained.run.replace(seeded=False))
                    projected = trained.diagnostics.projected
                    bar.advance(task)
                certificates = (
                    [certify(executed, self.delta, allow_large_delta=True) for executed in dict.fromkeys(recorded)] if private else []
                )
                worst = max(certificates, key=lambda certificate: certificate.epsilon, default=None)
                results.append(Result(row=row, run=recorded[0].replace(seeded=True), certificate=worst, accuracies=tuple(accuracies)))
        outcome = DemoTable(demo=self, results=tuple(results), projected=projected, folder=folder)
        write_folder(folder, _files(outcome), replace=True)
        return outcome

    def _rows(self) -> tuple[DemoRow, ...]:
        size = self.batch_size
        every_step: NoiseAt = "every_step"
        return (
            self._row("a", "cyclic, noise calibrated by composition", Cyclic(size=size), every_step, "all"),
            self._row("b", "cyclic, last iterate", Cyclic(size=size), every_step, "last"),
            self._row("c", "shuffled once, last iterate", ShuffledOnce(size=size), every_step, "last"),
            self._row("d", "cyclic, noise at pass ends, last iterate", Cyclic(size=size), "pass_ends", "last"),
            self._row("e", "Poisson DP-SGD, dp_accounting", Poisson(size=size), every_step, "all"),
            self._row("f", "no privacy", Cyclic(size=size), every_step, "all"),
        )

    def _row(self, letter: str, label: str, batches: Batches, noise_at: NoiseAt, release: Release) -> DemoRow:
        private = letter != "f"
        run = Run(
            records=self.train_records,
            batches=batches,
            passes=PASSES if private else PASSES_WITHOUT_PRIVACY,
            step_size=self.step_size,
            clip_norm=CLIP_NORM if private else None,
            noise_multiplier=None if private else 0.0,
            noise_at=noise_at,
            loss=Softmax(feature_norm=FEATURE_NORM, evidence="enforced"),
            release=release,
            neighbours=self.neighbours,
        )
        return DemoRow(letter=letter, label=label, run=run)


def _train_records(table: RecordTable) -> int:
    return len(split(table, TEST_FRACTION, seed=0)[0].features)


def _files(outcome: DemoTable) -> dict[str, bytes]:
    content = outcome.to_dict()
    files = {"table.json": to_json(content).encode(), "accuracy.png": demo_plot(content)}
    for result in outcome.results:
        letter = result.row.letter
        files[f"runs/{letter}.json"] = to_json(result.run.to_document()).encode()
        if result.certificate is not None:
            files[f"certificates/{letter}.json"] = to_json(result.certificate.to_dict()).encode()
    return files

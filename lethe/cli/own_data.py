"""The verbs around a table of one's own: `init` writes a configuration, `predict` uses what `train` wrote."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import AsJson, Quiet, working
from lethe.documents.strict import require_place, to_json, write_bytes
from lethe.errors import InputError

_CONFIGURATIONS = (".yaml", ".yml")


def init(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="A usual way to train; default: list them.")] = None,
    task_option: Annotated[str | None, typer.Option("--task", help="The same as TASK.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="A table of yours: .csv, .csv.gz or .parquet.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict, with --data.")] = None,
    look: Annotated[
        bool,
        typer.Option("--look", help="Read ranges, categories and classes off the records; the file then declares them public."),
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .yaml file that does not exist yet; default: print it.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented run for a usual task, or, with --data, a configuration of `lethe train` with its questions.

    Such as: lethe init --data table.csv --target label -o train.yaml
    """
    from lethe.jobs.init.table import table_configuration
    from lethe.jobs.init.tasks import TASKS, task_run

    if task is not None and task_option is not None:
        raise InputError("TASK and --task: both are given.", remedy="give one.")
    task = task if task is not None else task_option
    if task is not None and data is not None:
        raise InputError("TASK and --data: both are given.", remedy="give a task for a run, or a table for a configuration.")
    if (data is None) != (target is None):
        raise InputError("--data and --target: one is given without the other.", remedy="name the file and the column to predict.")
    if look and data is None:
        raise InputError("--look: there is nothing to look at.", remedy="give --data and --target.")
    if output is not None:
        _require_new(output)
    if task is None and data is None:
        if output is not None:
            raise InputError("-o: given without anything to write.", remedy=f"name one of {', '.join(TASKS)}, or give --data.")
        print(to_json({name: known.what for name, known in TASKS.items()}), end="") if as_json else _list_tasks()
        return
    with working("reading", quiet):
        text = table_configuration(data, target, look=look) if data is not None and target is not None else task_run(str(task))
    if output is not None:
        write_bytes(output, text.encode())
    if as_json:
        print(to_json({"text": text, "file": None if output is None else str(output)}), end="")
    elif output is None:
        print(text, end="")
    else:
        print(f"written: {output}")


def _list_tasks() -> None:
    from lethe.jobs.init.tasks import TASKS

    width = max(map(len, TASKS))
    for name, known in TASKS.items():
        print(f"{name:<{width}}  {known.what}")
    print("\nlethe init TASK -o run.yaml, or, for a table of yours: lethe init --data FILE --target COLUMN -o train.yaml")


def _require_new(file: Path) -> None:
    require_place(file, *_CONFIGURATIONS)
    if os.path.lexists(file):
        raise InputError(f"{file} exists already.", remedy="give a file that does not exist yet.")


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `lethe train` wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv, .csv.gz or .parquet file with the columns trained on.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .csv file for the predictions; default: print them.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict for the rows of TABLE with the model in FOLDER.

    Such as: lethe predict trained table.csv -o predictions.csv
    """
    from lethe.jobs.estimators.saved import SavedModel

    if output is not None:
        require_place(output, ".csv")
    model = SavedModel.load(folder)
    with working("predicting", quiet):
        predictions = model.predict_table(table).tolist()
    if output is not None:
        write_bytes(output, _as_csv(model.target, predictions).encode())
    if as_json:
        print(to_json({"target": model.target, "predictions": predictions}), end="")
    elif output is None:
        print(_as_csv(model.target, predictions), end="")
    else:
        print(f"{len(predictions)} predictions: {output}")


def _as_csv(target: str, predictions: list[object]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([target])
    writer.writerows([prediction] for prediction in predictions)
    return stream.getvalue()

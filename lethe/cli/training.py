"""The commands that train (`train`, `demo`, `audit`), and those around a table of your own (`init`, `predict`).

app.py adds the verbs; the work is in `lethe.jobs`, here are options, output and exit status.
"""

import csv
import io
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lethe.cli.console import SHUT, AllowLargeDelta, AsJson, Interrupted, Quiet, file_option, gate, print_json, print_tables, working
from lethe.documents.strict import DOCUMENTS, write_bytes
from lethe.errors import InputError


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to train on what: .yaml or .json (see docs/train_file.md).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write; it must not exist yet.")] = Path("lethe-run"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train as CONFIG says; write the weights, the recorded run and its certificate.

    Such as: lethe train train.yaml -o trained
    """
    from lethe.jobs.training import Job  # training needs the optional torch

    outcome = Job.load(config).train(output, progress=not quiet)
    if as_json:
        print_json(outcome.to_dict())
    else:
        print(outcome.summary())
        print(outcome.explanation)
    gate(outcome.epsilon)


def init(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="A usual way to train; default: list them.")] = None,
    data: Annotated[Path | None, typer.Option(help="A table of yours: .csv, .csv.gz or .parquet.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict, with --data.")] = None,
    look: Annotated[
        bool,
        typer.Option("--look", help="Read ranges, categories and classes off the records; the file then declares them public."),
    ] = False,
    output: Annotated[Path | None, file_option("A .yaml file that does not exist yet; default: print it.", ".yaml", ".yml")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented run for a usual task, or, with --data, a configuration of `lethe train` with its questions.

    Such as: lethe init --data table.csv --target label -o train.yaml
    """
    from lethe.jobs.init import TASKS, table_configuration, task_run

    if task is not None and data is not None:
        raise InputError("TASK and --data: both are given.", remedy="give a task for a run, or a table for a configuration.")
    if (data is None) != (target is None):
        raise InputError("--data and --target: one is given without the other.", remedy="name the file and the column to predict.")
    if look and data is None:
        raise InputError("--look: there is nothing to look at.", remedy="give --data and --target.")
    if output is not None and os.path.lexists(output):
        raise InputError(f"{output} exists already.", remedy="give a file that does not exist yet.")
    if data is not None and target is not None:
        with working("reading", quiet):
            text = table_configuration(data, target, look=look)
    elif task is not None:
        text = task_run(task)
    else:
        if output is not None:
            raise InputError("-o: given without anything to write.", remedy=f"name one of {', '.join(TASKS)}, or give --data.")
        titles = {name: run.partition("\n")[0].removeprefix("# ") for name, run in TASKS.items()}
        if as_json:
            print_json(titles)
            return
        for name, title in titles.items():
            print(f"{name:<{max(map(len, titles))}}  {title}")
        print("\nlethe init TASK -o run.yaml, or, for a table of yours: lethe init --data FILE --target COLUMN -o train.yaml")
        return
    if output is not None:
        write_bytes(output, text.encode())
    if as_json:
        print_json({"text": text, "file": None if output is None else str(output)})
    else:
        print(text if output is None else f"written: {output}\n", end="")


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `lethe train` wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv, .csv.gz or .parquet file with the columns trained on.")],
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Write the probability of each class too.")] = False,
    threshold: Annotated[
        float | None, typer.Option(help="Predict the second of two classes where its probability is at least this, in (0, 1).")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of TABLE to write beside predictions, such as an id; repeatable.")
    ] = None,
    output: Annotated[Path | None, file_option("A .csv file for the predictions; default: print them.", ".csv")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict for the rows of TABLE with the model in FOLDER.

    Such as: lethe predict trained table.csv --keep size --probabilities -o predictions.csv
    """
    from lethe.jobs.saved import SavedModel

    model = SavedModel.load(folder)
    with working("predicting", quiet):
        rows, columns = model.encode(table, keep=keep or ())
        predictions = model.predict(rows, threshold=threshold).tolist()
        chances = model.predict_proba(rows) if probabilities else np.empty((len(rows), 0))
    classes = (model.classes or ()) if probabilities else ()
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*columns, model.target, *(f"probability_{name}" for name in classes)])
    writer.writerows(
        [*ids, prediction, *row] for *ids, prediction, row in zip(*columns.values(), predictions, chances.tolist(), strict=True)
    )
    if output is not None:
        write_bytes(output, stream.getvalue().encode())
    if as_json:
        document: dict[str, Any] = {"target": model.target, "predictions": predictions}
        document |= {"classes": list(classes), "probabilities": chances.tolist()} if probabilities else {}
        print_json(document | ({"kept": columns} if columns else {}))
    else:
        print(stream.getvalue() if output is None else f"{len(predictions)} predictions: {output}\n", end="")


def demo(
    data: Annotated[Path | None, typer.Option(help="Your own .npz, .csv(.gz) or .parquet; default: scikit-learn's digits.")] = None,
    target: Annotated[str | None, typer.Option(help="The column (or array) to predict, with --data.")] = None,
    columns: Annotated[Path | None, typer.Option(help="A configuration of `lethe train` with a section columns:.")] = None,
    epsilon: Annotated[float, typer.Option(help="The privacy target, > 0.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option(help="In (0, 1), and below 1/records; default: the smaller of 1e-5 and 1/(10 records).")
    ] = None,
    allow_large_delta: AllowLargeDelta = False,
    neighbours: Annotated[
        str, typer.Option("--neighbours", "--neighbors", help="zero_out, or replace_one (fixed designs only).")
    ] = "zero_out",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each row is trained with.")] = 5,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for runs, certificates, table and plot.")] = Path("lethe-demo"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one model at one epsilon under six ways of batching and accounting, and compare the accuracies.

    Such as: lethe demo --seeds 1 -o demonstration
    """
    from lethe.jobs.demo import Demo  # training needs the optional torch
    from lethe.report.plots import demo_plot
    from lethe.report.tables import demo_table

    chosen = Demo(
        data=data,
        target=target,
        columns=columns,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,  # pyright: ignore[reportArgumentType]  # refused by name
        seeds=seeds,
        allow_large_delta=allow_large_delta,
    )
    table = chosen.execute(output, demo_plot, progress=not quiet)
    if as_json:
        print_json(table.content)
        return
    print_tables([demo_table(table.content)])
    print(table.fine_print)


def audit(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to audit, and how: .yaml or .json.")],
    workers: Annotated[int | None, typer.Option(help="Processes that train, instead of CONFIG's; -1: one a core.")] = None,
    output: Annotated[Path | None, file_option("Also write claim, audits and verdict to this .yaml.", *DOCUMENTS)] = None,
    report: Annotated[Path | None, file_option("Also write all of it, with the plot, as one .html page.", ".html", output=False)] = None,
    plot: Annotated[Path | None, file_option("Also draw claim and audits in this .png file.", ".png", output=False)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Hold what trainings give away against what is claimed of them; exit status 1 if it is more.

    Such as: lethe audit audit.yaml -o page.yaml
    """
    from lethe.jobs.audit import AuditJob  # training needs the optional torch
    from lethe.report.sections.evidence import audit_blocks, audit_document
    from lethe.report.tables import terminal

    draw = None
    if report is not None or plot is not None:
        from lethe.report.plots import audit_figure as draw  # plots need the optional matplotlib: found missing before the long work
    job = AuditJob.load(config)
    if workers is not None:
        job = job.model_copy(update={"workers": workers})
    try:
        outcome = job.execute(progress=not quiet)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(job.score_file, job.scored())) from None
    if draw is not None:
        from lethe.report.drawing import png, svg

        figure = draw(outcome.page, outcome.curve())
        if plot is not None:
            write_bytes(plot, png(figure))
        if report is not None:
            from lethe.report.formats import html
            from lethe.report.model import Picture

            picture = Picture(f"{outcome.page.says}.", svg(figure))
            write_bytes(report, html(audit_document(outcome.page, outcome.explained(), picture)).encode())
    if output is not None:
        outcome.page.save(output)
    if as_json:
        print_json(outcome.to_dict())
    else:
        print_tables(terminal(audit_blocks(outcome.page, outcome.explained())))
    if outcome.page.failed:
        raise typer.Exit(SHUT)


def _how_to_go_on(score_file: str | None, scored: int) -> str:
    if score_file is None:
        return "interrupted; no score was kept. With score_file: scores.jsonl in CONFIG the next audit can go on where it stopped."
    if scored == 0:
        return "interrupted before the first score. The same command begins anew."
    return f"interrupted; the scores of {scored} trainings are kept in {score_file}. The same command goes on from there."

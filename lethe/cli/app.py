"""The verbs of the command `lethe`, and how errors reach a person."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lethe._version import __version__
from lethe.accounting.certify import certify as certify_run
from lethe.accounting.compare import compare as compare_theorems
from lethe.accounting.compare import require_over
from lethe.accounting.recheck import recheck, recheck_statement, words_differ
from lethe.accounting.verify import load
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison, Sweep
from lethe.certificates.signing.keys import PublicKey
from lethe.certificates.statement import Statement
from lethe.certificates.swept import OVERS
from lethe.cli.audit import audit
from lethe.cli.completion import over_names, theorem_names
from lethe.cli.console import (
    ERRORS,
    INTERRUPTED,
    AllowLargeDelta,
    AsJson,
    Delta,
    Interrupted,
    Quiet,
    RunFile,
    page_console,
    print_tables,
    progress_bar,
    warnings_on_stderr,
    working,
)
from lethe.cli.gate import MaxEpsilon, gate, require_limit
from lethe.cli.ledger.verbs import app as ledger
from lethe.cli.own_data import init, predict
from lethe.cli.plan import plan
from lethe.cli.report import report
from lethe.cli.reproduce import reproduce
from lethe.cli.seals import KeyFile, key, verify
from lethe.cli.studio import studio
from lethe.cli.total import total
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import DOCUMENTS, require_place, to_json
from lethe.errors import InputError, LetheError
from lethe.report.tables import comparison_tables, sweep_tables
from lethe.run.run import Run
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Prove how private a training run's released model is.")


def main() -> None:
    """Run the command; exit status 0; 1 where the answer is no (see docs/cli.md); 2 for bad input; 130 when interrupted."""
    try:
        app(standalone_mode=True)
    except LetheError as error:
        ERRORS.print(f"lethe: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except Interrupted as stop:
        ERRORS.print(f"lethe: {stop}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        ERRORS.print(f"lethe: the output cannot be written: {error}.", markup=False)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns Ctrl-C into this status, without a word
            ERRORS.print("lethe: interrupted; nothing was written.", markup=False)
        raise


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    context.with_resource(warnings_on_stderr())


@app.command()
def certify(
    run: RunFile,
    delta: Delta,
    as_json: AsJson = False,
    max_epsilon: MaxEpsilon = None,
    allow_large_delta: AllowLargeDelta = False,
    every: Annotated[bool, typer.Option("--all", help="Try and show every theorem, the published ones too.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the certificate to this .json file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Print the smallest epsilon that can be proved of RUN; exit status 1 if there is none, or one above --max-epsilon.

    Such as: lethe certify run.yaml --delta 1e-6 -o certificate.json
    """
    require_limit(max_epsilon)
    if output is not None:
        require_place(output, *DOCUMENTS)
    with working("certifying", quiet):
        loaded = Run.load(run)
        comparison = compare_theorems(loaded, delta, allow_large_delta=allow_large_delta) if every else None
        certificate = certify_run(loaded, delta, allow_large_delta=allow_large_delta) if comparison is None else comparison.certificate
    if output is not None:
        certificate.save(output)
    if as_json:
        print(to_json(certificate.to_dict()), end="")
    elif comparison is None:
        print(certificate.explain())
    else:
        print(replace(certificate, others=()).explain())  # the table below says the same of the others
        print_tables(comparison_tables(comparison))
    gate(certificate.epsilon, max_epsilon)


@app.command()
def compare(
    run: RunFile,
    delta: Delta,
    over: Annotated[str | None, typer.Option("--over", help=f"Vary one of {', '.join(OVERS)}.", autocompletion=over_names)] = None,
    values: Annotated[str | None, typer.Option("--values", help="What to set it to, such as 10,20,50; default: a grid around RUN.")] = None,
    theorems: Annotated[
        str | None, typer.Option("--theorems", help="Only these, by name, such as composition,feldman-2018.", autocompletion=theorem_names)
    ] = None,
    applicable: Annotated[bool, typer.Option("--applicable", help="Leave the theorems that are refused out of the table.")] = False,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write data, table and plot to this new folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Show what every theorem, Lethe's and the published ones, says of RUN, and why it is used or not.

    Such as: lethe compare run.yaml --delta 1e-6 --over step_size --values 0.25,0.5 --theorems optimal-shift,composition
    """
    if over is None and values is not None:
        raise InputError(
            "--values needs --over steps, passes or noise (or another quantity of --help).", remedy="add --over, such as --over steps."
        )
    if output is not None:
        require_new_folder(output)
    loaded, numbers = Run.load(run), None if values is None else _numbers(values)
    names = ALL if theorems is None else [name.strip() for name in theorems.split(",")]
    if output is None:
        result = _compared(loaded, delta, over, numbers, names, allow_large_delta, quiet)
    else:
        from lethe.report.comparison_files import comparison_files  # plots need the optional matplotlib

        result = _compared(loaded, delta, over, numbers, names, allow_large_delta, quiet)
        write_folder(output, comparison_files(result))
    if as_json:
        print(to_json(result.to_dict()), end="")
        return
    if isinstance(result, Comparison):
        print_tables(comparison_tables(result, applicable=applicable))
    else:
        print_tables(sweep_tables(result, page_console().width))
    if output is not None:
        print(f"data, table and plot: {output}/")


def _compared(
    run: Run,
    delta: float,
    over: str | None,
    values: list[float] | None,
    theorems: Sequence[Theorem | str],
    allow_large_delta: bool,
    quiet: bool,
) -> Comparison | Sweep:
    try:
        if over is None:
            with working("comparing", quiet):
                return compare_theorems(run, delta, theorems=theorems, allow_large_delta=allow_large_delta)
        quantity = require_over(over)
        with progress_bar(f"comparing over {over}", quiet) as told:
            return compare_theorems(
                run, delta, over=quantity, values=values, theorems=theorems, allow_large_delta=allow_large_delta, progress=told
            )
    except InputError as error:
        remedy = error.remedy or "see `lethe compare --help`."
        raise InputError(_as_options(error.what), source=error.source, remedy=_as_options(remedy)) from error


def _as_options(text: str) -> str:
    """What `lethe.compare` says of its arguments, in the words of the command."""
    text = re.sub(r"^(over|values|theorems|delta):", r"--\1:", text)
    text = re.sub(r"\bover='(\w+)'", r"--over \1", text)
    return re.sub(r"\bvalues=\[([^]]*)\]", lambda match: "--values " + match[1].replace(" ", ""), text)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--values: got {text!r}; it needs numbers with commas between them.", remedy="write 10,20,50.") from error


app.command()(plan)


@app.command()
def explain(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="A certificate, a statement or a total: .json.")],
    key: KeyFile = None,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Also say why each other theorem was not used.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say in words what CERTIFICATE proves and from what; refuse one that does not follow from its run.

    Such as: lethe explain certificate.json
    """
    with working("checking", quiet):
        loaded = load(certificate, key=None if key is None else PublicKey.load(key))
        again = recheck(loaded) if isinstance(loaded, Certificate) else loaded
        if isinstance(again, Statement):
            again = recheck_statement(again).statement
    if isinstance(loaded, Certificate) and isinstance(again, Certificate) and (note := words_differ(loaded, again)):
        ERRORS.print(note, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(to_json(again.to_dict()), end="")
    else:
        print(again.explain(every=every) if isinstance(again, Certificate) else again.explain())
        print()
        print(again.cite())
    # Of a statement without a delta: whether anything is proved at all.
    gate(again.guarantee.epsilon(again.target_delta or 0.5) if isinstance(again, Statement) else again.epsilon, None)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to train on what: .yaml or .json (see docs/train.md).")],
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
        print(to_json(outcome.to_dict()), end="")
    else:
        print(outcome.summary())
        print(outcome.explain())
    gate(outcome.epsilon, None)


app.command()(init)
app.command()(predict)
app.command()(audit)
app.command()(verify)
app.command()(total)
app.command()(report)
app.command()(key)


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option("--data", help="Your own .npz, .csv(.gz) or .parquet; default: scikit-learn's digits.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column (or array) to predict, with --data.")] = None,
    columns: Annotated[Path | None, typer.Option("--columns", help="A configuration of `lethe train` with a section columns:.")] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The privacy target, > 0.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option("--delta", help="In (0, 1), and below 1/records; default: the smaller of 1e-5 and 1/(10 records).")
    ] = None,
    allow_large_delta: AllowLargeDelta = False,
    neighbours: Annotated[
        str, typer.Option("--neighbours", "--neighbors", help="zero_out, or replace_one (fixed designs only).")
    ] = "zero_out",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds each row is trained with.")] = 5,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for runs, certificates, table and plot.")] = Path("lethe-demo"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one model at one epsilon under six ways of batching and accounting, and compare the accuracies.

    Such as: lethe demo --seeds 1 -o demonstration
    """
    from lethe.jobs.demo import Demo  # training needs the optional torch
    from lethe.report.tables import demo_table

    demo = Demo.prepare(
        data=data,
        target=target,
        columns=columns,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        seeds=seeds,
        allow_large_delta=allow_large_delta,
    )
    outcome = demo.execute(output, progress=not quiet)
    if as_json:
        print(to_json(outcome.to_dict()), end="")
        return
    print_tables([demo_table(outcome.to_dict())])
    print(outcome.fine_print())


app.command()(reproduce)
app.command()(studio)
app.add_typer(ledger, name="ledger")

"""The verbs of the command `lethe`, and how errors reach a person."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lethe._version import __version__
from lethe.certificate import Certificate
from lethe.certify import certify as certify_run
from lethe.certify import recheck
from lethe.documents import to_json
from lethe.errors import LetheError
from lethe.plan import plan_with_certificate
from lethe.report.tables import comparison_table
from lethe.run import Run

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Prove how private a training run's released model is."
)
_errors = Console(stderr=True)
_INTERRUPTED = 130

RunFile = Annotated[Path, typer.Argument(metavar="RUN", help="A run: .yaml or .json.")]
Delta = Annotated[float, typer.Option("--delta", help="The delta of (epsilon, delta)-DP, in (0, 1).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def main() -> None:
    """Run the command; exit status 0, 2 for bad input, 130 when interrupted."""
    try:
        app(standalone_mode=True)
    except LetheError as error:
        _errors.print(f"lethe: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        _errors.print(f"lethe: the output cannot be written: {error}.", markup=False)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:  # typer turns Ctrl-C into this status, without a word
            _errors.print("lethe: interrupted; nothing was written.", markup=False)
        raise


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    pass


@app.command()
def certify(
    run: RunFile,
    delta: Delta,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Show every theorem with its epsilon or its reason.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the certificate to this .json file.")] = None,
) -> None:
    """Print the smallest epsilon that can be proved of RUN."""
    with _errors.status("certifying"):
        certificate = certify_run(Run.load(run), delta)
    if output is not None:
        certificate.save(output)
    if as_json:
        print(to_json(certificate.to_dict()), end="")
        return
    print(certificate.explain())
    if every:
        Console().print(comparison_table(certificate))


@app.command()
def plan(
    run: RunFile,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The target epsilon, > 0.")],
    delta: Delta,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the planned run to this .yaml or .json file.")] = None,
) -> None:
    """Find the smallest noise with which RUN meets (epsilon, delta)."""
    with _errors.status("planning"):
        planned, certificate = plan_with_certificate(Run.load(run), epsilon, delta)
    if output is not None:
        planned.save(output)
    document = planned.to_document()
    if as_json:
        content = {"noise_multiplier": document["noise_multiplier"], "run": document, "certificate": certificate.to_dict()}
        print(to_json(content), end="")
        return
    shape = document["noise_multiplier"]
    print(f"noise_multiplier: {shape if not isinstance(shape, list) else f'{len(shape)} values, {min(shape):g} to {max(shape):g}'}")
    print(certificate.explain())


@app.command()
def explain(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="A certificate: .json.")], as_json: AsJson = False
) -> None:
    """Say in words what CERTIFICATE proves, from what, and why by no other theorem; refuse one that does not follow from its run."""
    loaded = Certificate.load(certificate)
    with _errors.status("checking"):
        recheck(loaded)
    if as_json:
        print(to_json(loaded.to_dict()), end="")
        return
    print(loaded.explain())
    print()
    print(loaded.cite())


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to train on what: .yaml or .json (see docs/train.md).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write; it must not exist yet.")] = Path("lethe-run"),
    as_json: AsJson = False,
) -> None:
    """Train as CONFIG says; write the weights, the recorded run and its certificate."""
    from lethe.job import Job  # training needs the optional torch

    outcome = Job.load(config).execute(output)
    if as_json:
        print(to_json(outcome.to_dict()), end="")
        return
    print(outcome.summary())
    print(outcome.certificate.explain())


@app.command()
def demo(
    data: Annotated[Path | None, typer.Option("--data", help="Your own .npz, .csv or .parquet; default: scikit-learn's digits.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column (or array) to predict, with --data.")] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The privacy target, > 0.")] = 1.0,
    delta: Delta = 1e-5,
    neighbours: Annotated[str, typer.Option("--neighbours", help="zero_out, or replace_one (fixed designs only).")] = "zero_out",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds each row is trained with.")] = 5,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for runs, certificates, table and plot.")] = Path("lethe-demo"),
    as_json: AsJson = False,
) -> None:
    """Train one model at one epsilon under six ways of batching and accounting, and compare the accuracies."""
    from lethe.demo import Demo  # training needs the optional torch
    from lethe.report.tables import demo_table

    outcome = Demo.prepare(data=data, target=target, epsilon=epsilon, delta=delta, neighbours=neighbours, seeds=seeds).execute(output)
    if as_json:
        print(to_json(outcome.to_dict()), end="")
        return
    Console().print(demo_table(outcome.to_dict()))
    print(outcome.fine_print())

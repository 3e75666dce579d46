"""The command `lethe`: its verbs, and how errors reach a person.

The shell's entry point calls `main`; the verbs are in the other files of this package, and errors become one message and an exit status.
"""

import sys
from typing import Annotated

import typer

from lethe.cli.console import INTERRUPTED, Interrupted, say, warnings_on_stderr
from lethe.cli.ledger import app as ledger
from lethe.cli.pages import reproduce, studio
from lethe.cli.proofs import explain, key, report, total, verify
from lethe.cli.runs import certify, compare, plan
from lethe.cli.training import audit, demo, init, predict, train
from lethe.documents.version import __version__
from lethe.errors import LetheError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Prove how private a training run's released model is.")


def main() -> None:
    """Run the command; exit status 0; 1 where the answer is no (see docs/cli.md); 2 for bad input; 130 when interrupted."""
    try:
        app(standalone_mode=True)
    except LetheError as error:
        say(f"lethe: {error}", "red")
        sys.exit(2)
    except Interrupted as stop:
        say(f"lethe: {stop}")
        sys.exit(INTERRUPTED)
    except OSError as error:
        say(f"lethe: the output cannot be written: {error}.")
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns Ctrl-C into this status, without a word
            say("lethe: interrupted; nothing was written.")
        raise


def _version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    context.with_resource(warnings_on_stderr())


app.command()(certify)
app.command()(compare)
app.command()(plan)
app.command()(explain)
app.command()(train)
app.command()(init)
app.command()(predict)
app.command()(audit)
app.command()(verify)
app.command()(total)
app.command()(report)
app.command()(key)
app.command()(demo)
app.command()(reproduce)
app.command()(studio)
app.add_typer(ledger, name="ledger")

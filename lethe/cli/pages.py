"""`lethe reproduce`, which draws figures and tables of `lethe_experiments` (in the source only), and `lethe studio`.

app.py adds both verbs: the former draws a published result again, the latter starts the interactive page of `lethe.studio`.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import AsJson, Quiet, beginning_with, page_console, print_json, print_tables, progress_bar, say
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import read_document
from lethe.errors import InputError, MissingExtraError
from lethe.run.run import Run


def _reproductions() -> list[str]:
    if find_spec("lethe_experiments") is None:
        return []
    from lethe_experiments import REPRODUCTIONS

    return [*REPRODUCTIONS]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="What to compute again; without it: what there is.", autocompletion=beginning_with(_reproductions)
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Say what can be reproduced, or only what NAME is.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Pictures as .npz. hong-figure-1: MNIST; default: fetched from OpenML. "
            "liang-*: MNIST or CIFAR-10; default: scikit-learn's digits.",
        ),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="How often each row is trained, for what trains.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Train as often and over as wide a grid as the paper; takes far longer.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write data, table and plot to this new folder.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute a published figure or table again, with Lethe's own bound beside it.

    Such as: lethe reproduce --list
    """
    if find_spec("lethe_experiments") is None:
        raise MissingExtraError(
            "lethe reproduce: published figures and tables are no part of the installed package; they come with the source.",
            source="the package lethe_experiments, which is not here",
            remedy="clone the repository, and call it there after `make demo`.",
        )
    from lethe_experiments import REPRODUCTIONS, Options, describe, require_options
    from lethe_experiments import reproduce as compute
    from lethe_experiments.pages.reproduction_tables import list_table, reproduction_tables

    options = Options(data=data, repeats=repeats, full=full)
    if name is None or listing:
        if options.given():
            raise InputError(
                f"{', '.join(options.given())}: given where nothing is computed.", remedy="name what to compute, without --list."
            )
        if output is not None:
            if name is not None:
                raise InputError("-o: given with --list, which computes nothing.", remedy="leave --list out.")
            raise InputError("-o: given without anything to reproduce.", remedy=f"name one of {', '.join(REPRODUCTIONS)}.")
        titles = {title: describe(title) for title in (REPRODUCTIONS if name is None else [name])}
        if as_json:
            print_json(titles)
        else:
            print_tables([list_table(titles)])
        return
    require_options(name, options)
    files = None
    if output is not None:
        require_new_folder(output)
        from lethe_experiments.files import reproduction_files as files  # plots need the optional matplotlib
    # A step of a large network may take longer than the half minute that the time left is otherwise estimated from.
    with progress_bar(name, quiet, speed_estimate_period=3600.0) as report_progress:
        result = compute(name, report_progress, options)
    if output is not None and files is not None:
        write_folder(output, files(result))
    if as_json:
        print_json(result.to_dict())
        return
    print_tables(reproduction_tables(result.to_dict(), page_console().width))
    print(result.fine_print())
    print(f"data, table and plot: {output}/" if output is not None else f"to write data, table and plot: lethe reproduce {name} -o FOLDER")


def studio(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN_OR_CONFIG", help="A run to begin with, or a configuration of `lethe train`: .yaml or .json."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen on this computer; 0: any free port; default: 8421.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Plan a run in the browser: what every choice costs, as it is made. Only this computer can open the page.

    Such as: lethe studio run.yaml --no-browser
    """
    from lethe.studio.server import serve  # the page needs the optional Shiny
    from lethe.studio.state import State

    first = State.first()
    if run is not None and "privacy" in read_document(run):
        from lethe.cli.plans import public_run  # training needs the optional torch

        planned, target, find_noise, note = public_run(run)
        if note:
            say(f"lethe: {note}")
        first = State.of_run(planned, first.with_texts(epsilon=target.epsilon, delta=target.delta))
        first = first.with_texts(find="noise") if find_noise else first
    elif run is not None:
        first = State.of_run(Run.load(run))
    serve(first, port=port, browser=browser, report_address=lambda address: print(f"Lethe studio: {address} (Ctrl-C ends it)", flush=True))

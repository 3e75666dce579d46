"""The commands on a run that is described in a file: `certify`, `compare` and `plan`.

app.py adds the verbs; each reads a file that describes a run and calls `lethe.certify`, `lethe.compare` or `lethe.plan`: no data is needed.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lethe.accounting.certify import certify as certify_run
from lethe.accounting.certify import cumulative_privacy
from lethe.accounting.compare import THEOREM_NAMES, require_over
from lethe.accounting.compare import compare as compare_theorems
from lethe.accounting.heuristics import HEURISTIC, last_iterate_heuristic
from lethe.accounting.plan import plan_with_certificate
from lethe.certificates.comparison import Comparison
from lethe.certificates.sweep import OVERS
from lethe.cli.console import (
    AllowLargeDelta,
    AsJson,
    Delta,
    MaxEpsilon,
    Quiet,
    RunFile,
    beginning_with,
    file_option,
    gate,
    page_console,
    print_json,
    print_tables,
    progress_bar,
    working,
)
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import DOCUMENTS, read_document, write_bytes
from lethe.errors import InputError
from lethe.noise_allocation.allocate import SCHEDULES, Schedule, allocate
from lethe.noise_allocation.candidates import plot_content
from lethe.report.sections.evidence import comparison_blocks
from lethe.report.tables import allocation_table, comparison_files, sweep_tables, terminal
from lethe.run.run import Run
from lethe.run.schedules import Influence


def theorem_names(incomplete: str) -> list[str]:
    """Theorems for the last of some names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in THEOREM_NAMES if name.startswith(last) and name not in before.split(",")]


def certify(
    run: RunFile,
    delta: Delta,
    as_json: AsJson = False,
    max_epsilon: MaxEpsilon = None,
    allow_large_delta: AllowLargeDelta = False,
    every: Annotated[bool, typer.Option("--all", help="Show every theorem, the published ones too, and attack rates.")] = False,
    output: Annotated[Path | None, file_option("Also write the certificate to this .json file.", *DOCUMENTS)] = None,
    quiet: Quiet = False,
) -> None:
    """Print the smallest epsilon that can be proved of RUN; exit status 1 if there is none, or one above --max-epsilon.

    Such as: lethe certify run.yaml --delta 1e-6 -o certificate.json
    """
    with working("certifying", quiet):
        loaded = Run.load(run)
        comparison = compare_theorems(loaded, delta, allow_large_delta=allow_large_delta) if every else None
        certificate = certify_run(loaded, delta, allow_large_delta=allow_large_delta) if comparison is None else comparison.certificate
        printed = certificate if comparison is None else replace(certificate, others=())  # a table says the same of the others
        page = "" if as_json else printed.explain(every=every)
    if output is not None:
        certificate.save(output)
    if as_json:
        print_json(certificate.to_dict())
    else:
        print(page)
    if comparison is not None and not as_json:
        if (guess := last_iterate_heuristic(certificate.run, delta)) is not None:
            print(f"    {HEURISTIC}: epsilon = {guess:.4g} of the last iterate, if the loss were linear (arXiv:2410.06186)")
        print_tables(terminal(comparison_blocks(comparison)))
    gate(certificate.epsilon, max_epsilon)


def compare(
    run: RunFile,
    delta: Delta,
    over: Annotated[str | None, typer.Option(help=f"Vary one of {', '.join(OVERS)}.", autocompletion=beginning_with(lambda: OVERS))] = None,
    values: Annotated[str | None, typer.Option(help="What to set it to, such as 10,20,50; default: a grid around RUN.")] = None,
    theorems: Annotated[
        str | None, typer.Option(help="Only these, by name, such as composition,feldman-2018.", autocompletion=theorem_names)
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
    names = THEOREM_NAMES if theorems is None else [name.strip() for name in theorems.split(",")]
    try:
        if over is None:
            with working("comparing", quiet):
                result = compare_theorems(loaded, delta, theorems=names, allow_large_delta=allow_large_delta)
        else:
            swept = {"over": require_over(over), "values": numbers, "theorems": names, "allow_large_delta": allow_large_delta}
            with progress_bar(f"comparing over {over}", quiet) as report_progress:
                result = compare_theorems(loaded, delta, **swept, progress=report_progress)
    except InputError as error:
        remedy = _as_options(error.remedy or "see `lethe compare --help`.")
        raise InputError(_as_options(error.what), source=error.source, remedy=remedy) from error
    if output is not None:
        write_folder(output, comparison_files(result))
    if as_json:
        print_json(result.to_dict())
        return
    if isinstance(result, Comparison):
        print_tables(terminal(comparison_blocks(result, applicable=applicable)))
    else:
        print_tables(sweep_tables(result, page_console().width))
    if output is not None:
        print(f"data, table and plot: {output}/")


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


def plan(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or a configuration of `lethe train`: .yaml or .json.")],
    epsilon: Annotated[float, typer.Option(help="The target epsilon, > 0; of a configuration several, such as --epsilon .5 1 3.")],
    more: Annotated[list[float] | None, typer.Argument(metavar="[EPSILON]...", help="Further targets.", show_default=False)] = None,
    delta: Annotated[float | None, typer.Option(help="In (0, 1), and below 1/records; of a configuration its own.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help=f"Choose the noise's shape too: {', '.join(SCHEDULES)}.", autocompletion=beginning_with(lambda: SCHEDULES)),
    ] = None,
    influence: Annotated[
        str | None, typer.Option(help="How much each step's noise matters: a rate r for r^(T-t), or a file of an Influence.")
    ] = None,
    floor: Annotated[float, typer.Option(help="A least noise multiplier at every step that may have noise.")] = 0.0,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, file_option("Write the planned run to this .yaml or .json file.", *DOCUMENTS)] = None,
    plot: Annotated[Path | None, file_option("Draw noise and cumulative privacy loss in this .png file.", ".png", output=False)] = None,
    quiet: Quiet = False,
) -> None:
    """Find the smallest noise with which RUN meets (epsilon, delta), and with --schedule the best way to spread it.

    Such as: lethe plan run.yaml --epsilon 1 --delta 1e-6 -o planned.yaml
    """
    if schedule is None and (influence is not None or floor != 0.0):
        raise InputError("--influence and --floor: they need --schedule.", remedy="add --schedule auto.")
    if "privacy" in read_document(run):
        if (schedule, output, plot, allow_large_delta) != (None, None, None, False):
            raise InputError("--schedule, -o, --plot, --allow-large-delta: they are of a run.", remedy="leave them out, or give a run.")
        from lethe.cli.plans import plans  # training needs the optional torch

        with working("planning", quiet):
            rows = plans(run, [epsilon, *(more or ())], delta)
        if as_json:
            print_json({"plans": rows})
        for row in [] if as_json else rows:
            cells = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
            print(", ".join(f"{name} {value}" for name, value in cells.items()))
        return
    if delta is None or more:
        raise InputError("--delta, EPSILON: a run needs --delta, and one epsilon.", remedy="write --epsilon 1 --delta 1e-6.")
    draw = None
    if plot is not None:
        from lethe.report.plots import schedule_plot as draw  # plots need the optional matplotlib
    loaded, allocation = Run.load(run), None
    if schedule is None:
        with working("planning", quiet):
            planned, certificate = plan_with_certificate(loaded, epsilon, delta, allow_large_delta=allow_large_delta)
    else:
        weights = None if influence is None else _influence(influence)
        with progress_bar("planning", quiet) as cells:
            allocation = allocate(
                loaded,
                epsilon,
                delta,
                schedule=_schedule(schedule),
                influence=weights,
                floor=floor,
                allow_large_delta=allow_large_delta,
                progress=cells,
            )
        planned, certificate = allocation.run, allocation.certificate
    if plot is not None and draw is not None:
        with progress_bar("cumulative privacy loss", quiet) as cells:
            grown = cumulative_privacy(planned, delta, allow_large_delta=True, progress=cells)  # the plan has looked at it
        write_bytes(plot, draw(plot_content(planned, grown, allocation)))
    if output is not None:
        planned.save(output)
    document = planned.to_document()
    if as_json:
        content = {"noise_multiplier": document["noise_multiplier"], "run": document, "certificate": certificate.to_dict()}
        print_json(content | ({} if allocation is None else {"allocation": allocation.to_dict()}))
        return
    shape = document["noise_multiplier"]
    print(f"noise_multiplier: {_in_words(shape) if isinstance(shape, list) else shape}")
    if allocation is not None:
        print_tables([allocation_table(allocation.to_dict()), *map(Text, allocation.notes)])
    print(certificate.explain())


def _in_words(multipliers: list[float]) -> str:
    count, low, high = len(multipliers), min(multipliers), max(multipliers)
    return f"{low:g}, {count} times" if low == high else f"{count} values, {low:g} to {high:g}"


def _schedule(name: str) -> Schedule:
    for schedule in SCHEDULES:
        if name == schedule:
            return schedule
    raise InputError(f"--schedule: got {name!r}; it needs one of {', '.join(SCHEDULES)}.")


def _influence(text: str) -> Influence:
    try:
        rate = float(text)
    except ValueError:
        return Influence.load(text)
    return Influence(rate=rate, basis="assumed", detail="given by hand")

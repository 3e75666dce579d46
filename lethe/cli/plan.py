"""The verb `lethe plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from lethe.accounting.cumulative import cumulative_privacy
from lethe.accounting.plan import plan_with_certificate
from lethe.cli.completion import schedule_names
from lethe.cli.console import AllowLargeDelta, AsJson, Delta, Quiet, RunFile, print_tables, progress_bar, working
from lethe.documents.strict import DOCUMENTS, require_place, to_json, write_bytes
from lethe.errors import InputError
from lethe.noise_allocation.allocate import SCHEDULES, Schedule, allocate, plot_content
from lethe.report.tables import allocation_table
from lethe.run.run import Run
from lethe.run.schedules import Influence


def plan(
    run: RunFile,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The target epsilon, > 0.")],
    delta: Delta,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            help=f"Choose the noise's shape too: {', '.join(SCHEDULES)}.",
            autocompletion=schedule_names,
        ),
    ] = None,
    influence: Annotated[
        str | None,
        typer.Option("--influence", help="How much each step's noise matters: a rate r for r^(T-t), or a file of an Influence."),
    ] = None,
    floor: Annotated[float, typer.Option("--floor", help="A least noise multiplier at every step that may have noise.")] = 0.0,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the planned run to this .yaml or .json file.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw noise and cumulative privacy loss in this .png file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Find the smallest noise with which RUN meets (epsilon, delta), and with --schedule the best way to spread it.

    Such as: lethe plan run.yaml --epsilon 1 --delta 1e-6 -o planned.yaml
    """
    if schedule is None and (influence is not None or floor != 0.0):
        raise InputError("--influence and --floor: they need --schedule.", remedy="add --schedule auto.")
    if output is not None:
        require_place(output, *DOCUMENTS)
    draw = None if plot is None else _drawing(plot)
    loaded = Run.load(run)
    allocation = None
    if schedule is None:
        with working("planning", quiet):
            planned, certificate = plan_with_certificate(loaded, epsilon, delta, allow_large_delta=allow_large_delta)
    else:
        weights = None if influence is None else _influence(influence)
        with progress_bar("planning", quiet) as told:
            allocation = allocate(
                loaded,
                epsilon,
                delta,
                schedule=_schedule(schedule),
                influence=weights,
                floor=floor,
                allow_large_delta=allow_large_delta,
                progress=told,
            )
        planned, certificate = allocation.run, allocation.certificate
    if draw is not None:
        with progress_bar("cumulative privacy loss", quiet) as told:
            grown = cumulative_privacy(planned, delta, allow_large_delta=True, progress=told)  # the plan has looked at it
        draw(plot_content(planned, grown, allocation))
    if output is not None:
        planned.save(output)
    document = planned.to_document()
    if as_json:
        content = {"noise_multiplier": document["noise_multiplier"], "run": document, "certificate": certificate.to_dict()}
        print(to_json(content | ({} if allocation is None else {"allocation": allocation.to_dict()})), end="")
        return
    shape = document["noise_multiplier"]
    print(f"noise_multiplier: {_said(shape) if isinstance(shape, list) else shape}")
    if allocation is not None:
        print_tables([allocation_table(allocation.to_dict()), *map(Text, allocation.notes)])
    print(certificate.explain())


def _said(multipliers: list[float]) -> str:
    count, low, high = len(multipliers), min(multipliers), max(multipliers)
    return f"{low:g}, {count} times" if low == high else f"{count} values, {low:g} to {high:g}"


def _drawing(file: Path) -> Callable[[dict[str, Any]], None]:
    """What draws a planned run in `file`; a missing matplotlib or a wrong name is found before the long work."""
    from lethe.report.schedule_plot import schedule_plot  # plots need the optional matplotlib

    require_place(file, ".png")
    return lambda content: write_bytes(file, schedule_plot(content))


def _schedule(name: str) -> Schedule:
    for known in SCHEDULES:
        if name == known:
            return known
    raise InputError(f"--schedule: got {name!r}; it needs one of {', '.join(SCHEDULES)}.")


def _influence(text: str) -> Influence:
    try:
        rate = float(text)
    except ValueError:
        return Influence.load(text)
    return Influence(rate=rate, basis="assumed", detail="given by hand")

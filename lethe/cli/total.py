"""The verb `lethe total`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lethe.accounting.total import total as total_of
from lethe.cli.console import ERRORS, AllowLargeDelta, AsJson, Quiet, print_tables, working
from lethe.cli.gate import SHUT, MaxEpsilon, gate, require_limit
from lethe.cli.seals import KeyFile
from lethe.documents.strict import DOCUMENTS, require_place, to_json
from lethe.errors import InputError
from lethe.report.total_table import total_tables


def total(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Certificates, statements, totals or guarantees: .json; of one relation.")
    ],
    delta: Annotated[float | None, typer.Option("--delta", help="The delta of (epsilon, delta)-DP, in (0, 1), below 1/records.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="Instead of --delta: print the delta at this epsilon.")] = None,
    count: Annotated[
        list[int] | None,
        typer.Option("--count", help="How many independent releases like FILE there are; once for each FILE, in their order."),
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option("--neighbours", "--neighbors", help="replace_one, zero_out or add_or_remove: of guarantees, which do not say it."),
    ] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="record or user: what guarantees are about, which do not say it.")] = None,
    key: KeyFile = None,
    max_epsilon: MaxEpsilon = None,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the total to this .json file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Print what all FILEs cost together; exit status 1 if nothing is proved, or more than --max-epsilon.

    Such as: lethe total model.json statistics.json --delta 1e-6
    """
    require_limit(max_epsilon)
    if output is not None:
        require_place(output, *DOCUMENTS)
    if (delta is None) == (epsilon is None):
        raise InputError("--delta, --epsilon: it needs one of the two.", remedy="write --delta 1e-6, or --epsilon 1 for the delta at it.")
    counts = [1] * len(files) if count is None else count
    if len(counts) != len(files):
        raise InputError(
            f"--count: given {len(counts)} times for {len(files)} files.",
            remedy="give it once for each file, in their order: --count 1 --count 3.",
        )
    with working("adding", quiet):
        found = total_of(
            list(zip(map(str, files), counts, strict=True)),
            delta,
            epsilon=epsilon,
            neighbours=neighbours,  # pyright: ignore[reportArgumentType]  # refused there by name
            unit=unit,  # pyright: ignore[reportArgumentType]  # as neighbours
            key=key,
            allow_large_delta=allow_large_delta,
        )
    if output is not None:
        found.save(output)
    if as_json:
        print(to_json(found.to_dict()), end="")
    else:
        print_tables([*total_tables(found), *(Text(f"declared, and proved by nothing: {line}") for line in found.declared)])
    if found.asked == "epsilon" and found.large_delta and not allow_large_delta:
        ERRORS.print(f"lethe: delta = {found.delta:g} is 1/records or more: it promises nothing.", style="red", highlight=False)
        raise typer.Exit(SHUT)
    gate(math.inf if found.not_private else found.epsilon, max_epsilon)

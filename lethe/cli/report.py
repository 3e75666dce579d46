"""The verb `lethe report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.certificates.signing.keys import PublicKey
from lethe.cli.console import ERRORS, AllowLargeDelta, AsJson, Quiet, working
from lethe.cli.gate import SHUT, gate
from lethe.cli.seals import KeyFile
from lethe.documents.strict import require_place, to_json
from lethe.report.document.build import document_of
from lethe.report.document.formats.machine_readable import content
from lethe.report.document.reading import read_subject
from lethe.report.document.subject import with_extras
from lethe.report.document.writing import FORMATS, write_report

_DEFAULT = Path("report.html")


def report(
    subject: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_CERTIFICATE_OR_FOLDER", help="A run, a certificate, statement or total, or a folder that `lethe train` wrote."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file: .html, .md, .tex or .json; default: report.html.", show_default=False)
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Of a run, which has none: in (0, 1), and below 1/records.")] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="The released weights, to be held against the seal; default: those in the folder.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Also show, marked, what no guarantee covers. Do not publish such a report.")
    ] = False,
    key: KeyFile = None,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a report that says what is promised, to whom, on what it rests and what voids it; exit status 1 for NOT PRIVATE.

    Such as: lethe report run.yaml --delta 1e-6 -o report.html
    """
    place = None if as_json and output is None else output or _DEFAULT
    if place is not None:
        require_place(place, *FORMATS)
    with working("writing the report", quiet):
        believed = None if key is None else PublicKey.load(key)
        found = read_subject(subject, delta=delta, key=believed, allow_large_delta=allow_large_delta, weights=weights)
        found = with_extras(found, show_private=private)
        if place is not None:
            write_report(found, place)
    if as_json:
        print(to_json(content(document_of(found))), end="")
    else:
        print(f"report: {place}")
    gate(found.epsilon, None)
    if any(page.failed for page in found.audits):
        ERRORS.print("lethe: an audit beside it says that the claim is false, or is void.", style="red", markup=False, highlight=False)
        raise typer.Exit(SHUT)

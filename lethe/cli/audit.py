"""The verb `lethe audit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import AsJson, Interrupted, Quiet, print_tables
from lethe.documents.strict import DOCUMENTS, require_place, to_json, write_bytes

if TYPE_CHECKING:
    from lethe.jobs.audit.outcome import AuditOutcome

_FAILED = 1


def audit(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to audit, and how: .yaml or .json.")],
    workers: Annotated[int | None, typer.Option("--workers", help="Processes that train, instead of CONFIG's; -1: one a core.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write claim, audits and verdict to this .yaml.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Also write all of it, with the plot, as one .html page.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw claim and audits in this .png file.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Hold what trainings give away against what is claimed of them; exit status 1 if it is more.

    Such as: lethe audit audit.yaml -o page.yaml
    """
    from lethe.jobs.audit.job import AuditJob  # training needs the optional torch

    if output is not None:
        require_place(output, *DOCUMENTS)
    write = _writing(report, plot)
    job = AuditJob.load(config)
    if workers is not None:
        job = job.model_copy(update={"workers": workers})
    try:
        outcome = job.execute(progress=not quiet)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(job.score_file, job.kept())) from None
    write(outcome)
    if output is not None:
        outcome.page.save(output)
    if as_json:
        print(to_json(outcome.to_dict()), end="")
    else:
        from lethe.report.audit_tables import audit_tables

        print_tables(audit_tables(outcome.page, outcome.explained()))
    if outcome.page.failed:
        raise typer.Exit(_FAILED)


def _writing(report: Path | None, plot: Path | None) -> Callable[[AuditOutcome], None]:
    """What writes the picture and the page; a missing matplotlib or a wrong name is found before the long work."""
    if report is None and plot is None:
        return lambda outcome: None
    from lethe.report.audit_html import audit_html
    from lethe.report.audit_plot import audit_plot  # plots need the optional matplotlib

    for file, suffix in ((report, ".html"), (plot, ".png")):
        if file is not None:
            require_place(file, suffix)

    def write(outcome: AuditOutcome) -> None:
        picture = audit_plot(outcome.page, outcome.curve())
        if plot is not None:
            write_bytes(plot, picture)
        if report is not None:
            write_bytes(report, audit_html(outcome.page, picture, outcome.explained()))

    return write


def _how_to_go_on(score_file: str | None, kept: int) -> str:
    if score_file is None:
        return "interrupted; no score was kept. With score_file: scores.jsonl in CONFIG the next audit can go on where it stopped."
    if kept == 0:
        return "interrupted before the first score. The same command begins anew."
    return f"interrupted; the scores of {kept} trainings are kept in {score_file}. The same command goes on from there."

"""The verb `lethe audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import SHUT, AsJson, Interrupted, Quiet, file_option, print_json, print_tables
from lethe.documents.strict import DOCUMENTS, write_bytes


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
    from lethe.jobs.audit.job import AuditJob  # training needs the optional torch
    from lethe.report.sections.evidence import audit_blocks, audit_document
    from lethe.report.tables import terminal

    draw = None
    if report is not None or plot is not None:
        from lethe.report.run_plots import audit_figure as draw  # plots need the optional matplotlib: found missing before the long work
    job = AuditJob.load(config)
    if workers is not None:
        job = job.model_copy(update={"workers": workers})
    try:
        outcome = job.execute(progress=not quiet)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(job.score_file, job.kept())) from None
    if draw is not None:
        from lethe.report.drawing import png, svg

        figure = draw(outcome.page, outcome.curve())
        if plot is not None:
            write_bytes(plot, png(figure))
        if report is not None:
            from lethe.report.formats import html
            from lethe.report.model import Picture

            picture = Picture("Claim and audits: epsilon against delta; the table has the numbers.", outcome.page.says, lambda: svg(figure))
            write_bytes(report, html(audit_document(outcome.page, outcome.explained(), picture)).encode())
    if output is not None:
        outcome.page.save(output)
    if as_json:
        print_json(outcome.to_dict())
    else:
        print_tables(terminal(audit_blocks(outcome.page, outcome.explained())))
    if outcome.page.failed:
        raise typer.Exit(SHUT)


def _how_to_go_on(score_file: str | None, kept: int) -> str:
    if score_file is None:
        return "interrupted; no score was kept. With score_file: scores.jsonl in CONFIG the next audit can go on where it stopped."
    if kept == 0:
        return "interrupted before the first score. The same command begins anew."
    return f"interrupted; the scores of {kept} trainings are kept in {score_file}. The same command goes on from there."

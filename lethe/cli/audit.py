"""The verb `lethe audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lethe.cli.console import SHUT, AsJson, Interrupted, Quiet, file_option, print_json, print_tables
from lethe.documents.strict import DOCUMENTS, write_bytes
from lethe.errors import InputError


def audit(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="What to audit, and how: .yaml or .json.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Instead: audit trainers that are sound and trainers that are broken; tell them apart.")
    ] = False,
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
    if self_test == (config is not None):
        raise InputError("audit: it needs CONFIG, or --self-test, and not both.", remedy="see `lethe audit --help`.")
    if config is None:
        if output is not None or report is not None or plot is not None:
            raise InputError("-o, --report, --plot: given with --self-test, which audits many trainers.", remedy="use --json > FILE.")
        _self_test(workers, as_json, quiet)
        return
    from lethe.jobs.audit.job import AuditJob  # training needs the optional torch
    from lethe.report.audit_tables import audit_tables

    draw = None
    if report is not None or plot is not None:
        from lethe.report.audit_plot import audit_plot as draw  # plots need the optional matplotlib: found missing before the long work
    job = AuditJob.load(config)
    if workers is not None:
        job = job.model_copy(update={"workers": workers})
    try:
        outcome = job.execute(progress=not quiet)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(job.score_file, job.kept())) from None
    if draw is not None:
        picture = draw(outcome.page, outcome.curve())
        if plot is not None:
            write_bytes(plot, picture)
        if report is not None:
            from lethe.report.audit_html import audit_html

            write_bytes(report, audit_html(outcome.page, picture, outcome.explained()))
    if output is not None:
        outcome.page.save(output)
    if as_json:
        print_json(outcome.to_dict())
    else:
        print_tables(audit_tables(outcome.page, outcome.explained()))
    if outcome.page.failed:
        raise typer.Exit(SHUT)


def _how_to_go_on(score_file: str | None, kept: int) -> str:
    if score_file is None:
        return "interrupted; no score was kept. With score_file: scores.jsonl in CONFIG the next audit can go on where it stopped."
    if kept == 0:
        return "interrupted before the first score. The same command begins anew."
    return f"interrupted; the scores of {kept} trainings are kept in {score_file}. The same command goes on from there."


def _self_test(workers: int | None, as_json: bool, quiet: bool) -> None:
    from lethe.audit.trainers.self_tests import self_test  # training needs the optional torch
    from lethe.report.self_test_table import self_test_table

    result = self_test(workers=workers, progress=not quiet)
    if as_json:
        print_json(result.to_dict())
    else:
        wrong = sum(not row.right for row in result.rows)
        said = "the audits told sound trainers from broken ones" if result.passed else f"{wrong} of {len(result.rows)} rows are wrong"
        print_tables([self_test_table(result.to_dict()["rows"]), Text(said, style="bold green" if result.passed else "bold red")])
    if not result.passed:
        raise typer.Exit(SHUT)

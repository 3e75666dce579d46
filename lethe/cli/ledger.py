"""`lethe ledger`: what a data set has left, in a database that a team shares.

app.py adds the verbs; each opens the database, calls one method of `lethe.ledger.Ledger`, and prints what it returns.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from lethe.cli.console import SHUT, AsJson, KeyFile, Quiet, file_option, print_json, print_tables, say, working
from lethe.documents.strict import read_document, write_bytes
from lethe.errors import InputError, LedgerError
from lethe.report.sections.budgets import accounts_document
from lethe.report.sections.evidence import account_blocks
from lethe.report.tables import reservations_csv, terminal

app = typer.Typer(no_args_is_help=True, help="Reserve, release, settle: what a data set has left of its privacy budget, for a team.")

Database = Annotated[str, typer.Argument(metavar="LEDGER", help="A SQLite file, or postgresql://USER@HOST/NAME.")]
Name = Annotated[str, typer.Argument(metavar="DATASET", help="The data set's name in the ledger.")]
AnyName = Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Default: all of them.")]
Number = Annotated[int, typer.Argument(metavar="RESERVATION", help="Its number, as `reserve` and `show` print it.")]
Item = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A certificate, a statement or a guarantee: .json.")]
By = Annotated[str | None, typer.Option(help="Who; default: the user of this process.")]
Why = Annotated[str, typer.Option(help="What for.")]
Epsilon = Annotated[float | None, typer.Option(help="With --delta: a pair, in the place of FILE.")]
DeltaOf = Annotated[float | None, typer.Option(help="The delta of the pair.")]
BudgetDelta = Annotated[float | None, typer.Option("--delta", help="Of a budget without one.")]
Rho = Annotated[float | None, typer.Option(help="zCDP, in the place of FILE.")]
Mu = Annotated[float | None, typer.Option(help="Gaussian DP, in the place of FILE.")]


@app.command()
def create(
    database: Database,
    name: Name,
    neighbours: Annotated[str, typer.Option("--neighbours", "--neighbors", help="replace_one, zero_out or add_or_remove.")],
    epsilon: Annotated[float | None, typer.Option(help="The budget, with --delta.")] = None,
    delta: Annotated[float | None, typer.Option(help="The budget's delta.")] = None,
    rho: Annotated[float | None, typer.Option(help="The budget as zCDP.")] = None,
    mu: Annotated[float | None, typer.Option(help="The budget as Gaussian DP.")] = None,
    keep: Annotated[str | None, typer.Option("--filter", help="gdp or zcdp: what is added up; default: gdp for a pair.")] = None,
    slack: Annotated[float | None, typer.Option(help="The part of delta for releases whose noise is not Gaussian.")] = None,
    unit: Annotated[str, typer.Option(help="record or user.")] = "record",
    fingerprint: Annotated[str, typer.Option(help="Tells the data set from others; no digest of its content.")] = "",
    spender: Annotated[list[str] | None, typer.Option(help="Who may reserve; once for each. Default: everybody.")] = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Enter DATASET with its budget, in a new LEDGER or one that is there.

    Such as: lethe ledger create ledger.sqlite patients --neighbours replace_one --epsilon 3 --delta 1e-6
    """
    from lethe.ledger import Budget  # needs SQLAlchemy, which is optional

    budget = Budget(epsilon=epsilon, delta=delta, rho=rho, mu=mu, filter=keep, slack=slack)  # pyright: ignore[reportArgumentType]  # refused by name
    terms: Any = {"neighbours": neighbours, "unit": unit}
    entered = _ledger(database, make=True).create(name, **terms, budget=budget, fingerprint=fingerprint, spenders=spender or (), by=by)
    if as_json:
        print_json({"data_set": entered.name, "budget": entered.budget.to_dict()})
    else:
        print(f"{entered.name}: a budget of {entered.budget.describe()} for everything released; protected is {entered.about()}.")


@app.command()
def reserve(
    database: Database,
    name: Name,
    file: Item = None,
    epsilon: Epsilon = None,
    delta: DeltaOf = None,
    rho: Rho = None,
    mu: Mu = None,
    slack: Annotated[float, typer.Option(help="The share of delta for a guarantee without an exact price.")] = 0.0,
    by: By = None,
    why: Why = "",
    key: KeyFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Reserve what a planned release costs, before it is made; exit status 2 if it does not fit, with the largest that does.

    Such as: lethe ledger reserve ledger.sqlite patients certificate.json --by "team A"
    """
    item = _presented(file, epsilon, delta, rho, mu)
    with working("reserving", quiet):
        ledger = _ledger(database, key=key)
        reservation = ledger.reserve(name, item, by=by, why=why, slack=slack)
    _tell(ledger, reservation, "reserved", as_json)


@app.command()
def start(database: Database, number: Number) -> None:
    """Say that noise is about to be drawn under RESERVATION, which from then on is never voided.

    Such as: lethe ledger start ledger.sqlite 2
    """
    _ledger(database).start(number)
    print(f"reservation {number}: started.")


@app.command()
def settle(
    database: Database,
    number: Number,
    file: Item = None,
    epsilon: Epsilon = None,
    delta: DeltaOf = None,
    rho: Rho = None,
    mu: Mu = None,
    artefact: Annotated[str, typer.Option(help="SHA-256 of what was released.")] = "",
    fixed_before: Annotated[str, typer.Option(help="How a smaller cost was fixed before the release; declared.")] = "",
    by: By = None,
    why: Why = "",
    key: KeyFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Record what was released under RESERVATION, with its certificate.

    Such as: lethe ledger settle ledger.sqlite 2 trained/certificate.json
    """
    item = _presented(file, epsilon, delta, rho, mu)
    with working("settling", quiet):
        ledger = _ledger(database, key=key)
        reservation = ledger.settle(number, item, artefact=artefact, by=by, why=why, fixed_before=fixed_before)
    _tell(ledger, reservation, "settled", as_json)


@app.command()
def void(
    database: Database, number: Number, reason: Annotated[str, typer.Option(help="Why nothing can have been released.")], by: By = None
) -> None:
    """Give RESERVATION back, under which no noise was drawn.

    Such as: lethe ledger void ledger.sqlite 2 --reason "the job was never started"
    """
    _ledger(database).void(number, reason=reason, by=by)
    print(f"reservation {number}: voided.")


@app.command()
def show(
    database: Database,
    name: AnyName = None,
    delta: BudgetDelta = None,
    plot: Annotated[
        Path | None, file_option("Draw the budget over time into this file: .png or .svg.", ".png", ".svg", output=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what was released from DATASET, what is reserved, and what is left.

    Such as: lethe ledger show ledger.sqlite patients --plot budget.svg
    """
    accounts = _accounts(database, name, delta)
    if plot is not None and accounts:
        from lethe.report.drawing import png, svg  # needs matplotlib, which is optional
        from lethe.report.plots import budget_figure

        figure = budget_figure(accounts)
        write_bytes(plot, svg(figure).encode() if plot.suffix.lower() == ".svg" else png(figure))
    if as_json:
        print_json(accounts)
        return
    for account in accounts:
        print_tables(
            [*terminal(account_blocks(account)), *(Text(f"declared, and proved by nothing: {line}") for line in account["declared"])]
        )


@app.command()
def verify(
    database: Database,
    head: Annotated[str | None, typer.Option(help="The digest of an entry that was written down elsewhere.")] = None,
    key: KeyFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Walk the chain of LEDGER and compute every certificate again; exit status 1 if anything is not as it was written.

    Such as: lethe ledger verify ledger.sqlite --head 6b86b273...
    """
    ledger = _noting_read_only(_ledger(database, key=key))
    try:
        with working("verifying", quiet):
            verification = ledger.verify(head=head)
    except LedgerError as error:
        say(f"lethe: {error}", "red")
        raise typer.Exit(SHUT) from error
    if as_json:
        print_json({"entries": verification.entries, "recomputed": verification.recomputed, "head": verification.head})
    else:
        print(f"{verification.entries} entries follow from one another, and {verification.recomputed} guarantees from their documents.")
        print(f"head {verification.head}")
        print("Write the head down elsewhere: with it, --head finds whether entries were cut off, or all were written anew.")


@app.command()
def export(
    database: Database,
    output: Annotated[Path, file_option("A page (.html), or a table of all reservations (.csv).", ".html", ".csv")],
    name: AnyName = None,
    delta: BudgetDelta = None,
) -> None:
    """Write what was released, by whom, on which assumptions, and what is left: for whoever answers for the data.

    Such as: lethe ledger export ledger.sqlite patients -o ledger.html
    """
    accounts = _accounts(database, name, delta)
    if output.suffix.lower() == ".csv":
        written = reservations_csv(accounts)
    else:
        from lethe.report.formats import html  # needs jinja2, which is optional

        written = html(accounts_document(accounts))
    write_bytes(output, written.encode())
    print(f"{output}: {sum(len(account['reservations']) for account in accounts)} reservations of {len(accounts)} data sets.")


def _ledger(database: str, **options: Any) -> Any:
    from lethe.ledger import Ledger  # needs SQLAlchemy, which is optional

    return Ledger.open(database, **options)


def _noting_read_only(ledger: Any) -> Any:
    """The ledger; a line on standard error says if it was opened for reading alone."""
    if ledger.read_only:
        say(f"{ledger.name}: this account may not write there; it is opened for reading alone.")
    return ledger


def _accounts(database: str, name: str | None, delta: float | None) -> list[dict[str, Any]]:
    ledger = _noting_read_only(_ledger(database))
    return [ledger.show(data_set).to_dict(delta) for data_set in ((name,) if name is not None else ledger.data_sets())]


def _presented(file: Path | None, epsilon: float | None, delta: float | None, rho: float | None, mu: float | None) -> dict[str, Any]:
    """What is reserved or settled: the content of a file, or a guarantee in its place."""
    sources = [source for source in (file, epsilon, rho, mu) if source is not None]
    if len(sources) != 1 or (epsilon is None) != (delta is None):
        raise InputError(
            "FILE, --epsilon with --delta, --rho, --mu: it needs one of these.",
            source="what is released",
            remedy="give the certificate of the planned run; or such as --epsilon 0.5 --delta 1e-6.",
        )
    if file is not None:
        return read_document(file)
    if epsilon is not None:
        return {"kind": "approx_dp", "epsilon": epsilon, "delta": delta}
    return {"kind": "zcdp", "rho": rho} if rho is not None else {"kind": "gdp", "mu": mu}


def _tell(ledger: Any, reservation: Any, word: str, as_json: bool) -> None:
    account = ledger.show(reservation.data_set)
    remaining = account.terms.what_fits(account.counted)
    if as_json:
        print_json({"reservation": reservation.number, "data_set": reservation.data_set, "state": word, "left": remaining})
    else:
        print(f"{reservation.number}\t{word}, of {reservation.data_set}; {remaining}.")

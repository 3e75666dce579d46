"""An account of data sets as a page for whoever answers for the data, and as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape
from typing import Any

from lethe.report.ledger.columns import COLUMNS, cells

_CSV = ("data_set", *COLUMNS, "settled_at", "artefact", "reason", "declared")
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ccc}"
    ".bar{background:#eee;height:1rem}.bar div{background:#0072B2;height:1rem}.voided{color:#666}"
)


def csv_of(accounts: Sequence[dict[str, Any]]) -> str:
    """All reservations of all data sets, a line each.

    Args:
        accounts: plain data, `Account.to_dict`.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_CSV)
    for account in accounts:
        for line in account["reservations"]:
            rest = (line["settled_at"], line["artefact"], line["reason"], "; ".join(line["declared"]))
            table.writerow([_plain(one) for one in (account["data_set"], *cells(line), *rest)])
    return text.getvalue()


def _plain(cell: str) -> str:
    # A spreadsheet would compute what begins so.
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell


def html_of(accounts: Sequence[dict[str, Any]]) -> str:
    """One page: of each data set what it rests on (declared first), what is left, and what was released, by whom.

    Args:
        accounts: plain data, `Account.to_dict`.
    """
    body = "".join(map(_section, accounts))
    head = f'<meta charset="utf-8"><title>Privacy budgets</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><h1>Privacy budgets</h1>{body}</body></html>\n'


def _section(account: dict[str, Any]) -> str:
    title, *counted = account["title"]
    declared = "".join(f"<li>{escape(line)}</li>" for line in account["declared"])
    share = min(100.0 * account["share"], 100.0)
    bar = f'<div class="bar" role="img" aria-label="{share:.2f} % of the budget is counted"><div style="width:{share:.2f}%"></div></div>'
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*COLUMNS, "settled", "artefact", "reason"))
    rows = "".join(
        f'<tr class="{escape(line["state"])}">'
        + "".join(f"<td>{escape(one)}</td>" for one in (*cells(line), line["settled_at"][:19], line["artefact"][:16], line["reason"]))
        + "</tr>"
        for line in account["reservations"]
    )
    return (
        f"<h2>{escape(title)}</h2><p><strong>Declared, and proved by nothing:</strong></p><ul>{declared}</ul>"
        + "".join(f"<p>{escape(line)}.</p>" for line in counted)
        + f"{bar}<p>{escape(account['note'])}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        + f"<p>Last entry: <code>{escape(account['head'])}</code></p>"
    )

"""The page of a ledger: how much of each data set's budget is left, over time and by whom, for whoever answers for the data.

`lethe ledger export` calls `accounts_document` with the accounts of data sets.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from math import floor
from typing import Any

from lethe.calculus.upward_formatting import shown, shown_down
from lethe.report.model import COLOURS, Block, Document, Facts, Items, Panel, Picture, Section, Series, Table
from lethe.report.sections.evidence import bare_document, reservation_cells
from lethe.report.wording import times

_STATES = {"reserved": "reserved", "started": "running, or broken off", "settled": "released", "voided": "given back, unused"}
_NAMED = 4  # people in the caption
_WIDTH, _HEIGHT = 460.0, 24.0


def accounts_document(accounts: Sequence[dict[str, Any]]) -> Document:
    """The accounts of data sets (`Account.to_dict`) as one page: what is left; folded away, the reservations and what it rests on."""
    return bare_document("Privacy budgets", *(section for number, account in enumerate(accounts) for section in _sections(account, number)))


def _sections(account: dict[str, Any], number: int) -> Iterator[Section]:
    name, lines = account["data_set"], account["reservations"]
    yield Section(f"set-{number}", name, tuple(_overview(account)), account)
    declared = Items(tuple(account["declared"]))
    yield Section(f"set-{number}-declared", f"Declared, and proved by nothing ({name})", (declared, account["note"]), {}, shown=0)
    if not lines:
        return
    head = ("when", "epsilon", "by whom", "what for", "what became of it")
    rows = tuple(_reservation(line) for line in lines)
    marks = tuple("quiet" if line["state"] == "voided" else "" for line in lines)
    table = Table("Reservations", head, rows, numbers=(0, 1), marks=marks)
    blocks = (table, f"What still fits: {account['title'][2]}.", f"The last entry of the ledger about it: {account['head']}.")
    yield Section(f"set-{number}-reservations", f"{times(len(lines), 'reservation', 'reservations')} ({name})", blocks, {}, shown=0)


def _overview(account: dict[str, Any]) -> Iterator[Block]:
    budget, _, fits = account["title"]
    shares = _shares(account)
    left = _percent_left(account["share"])
    yield f"{left} of the privacy budget is left."
    by_whom = [f"{name} {_percent(share)}" for name, share in list(shares.items())[:_NAMED]]
    words = ", ".join([*by_whom, *(["others"] if len(shares) > _NAMED else [])])
    yield Picture(f"Spent, from the left: {words or 'nothing'}; {left} is left.", _bar(list(shares.values())))
    terms = budget.removeprefix(f"{account['data_set']}: a budget of ").split("; protected is ")
    spent = "" if "epsilon" not in account else f"epsilon {shown(account['epsilon'])} at delta = {account['delta']:g}, "
    if account.get("largest_epsilon"):
        fits = f"epsilon up to {shown_down(account['largest_epsilon'])} at delta = {account['delta']:g} in one release, or less in several"
    counted = f"{spent}in {times(len(account['reservations']), 'reservation', 'reservations')}"
    yield Facts((("Budget", terms[0]), ("Protected", terms[-1]), ("Counted so far", counted), ("What still fits", fits)))
    if (over_time := _over_time(account)) is not None:
        yield over_time
    if shares:
        mine = {name: [line for line in account["reservations"] if line["by"] == name] for name in shares}
        rows = tuple((name, _percent(shares[name]), str(len(mine[name])), _time(mine[name][-1]["at"])) for name in shares)
        yield Table("By whom", ("who", "of the budget", "reservations", "last"), rows, numbers=(1, 2, 3))


def _shares(account: dict[str, Any]) -> dict[str, float]:
    """Who counts for which part of the budget, the largest first."""
    whole, shares = int(account["limit"]["cost"]), dict[str, float]()
    for line in account["reservations"]:
        shares[line["by"]] = shares.get(line["by"], 0.0) + int(line["price"]["cost"]) / whole
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _bar(shares: Sequence[float]) -> str:
    """The budget as a bar: a piece for each who spent of it, and what is left, pale."""
    pieces, start = [f'<rect x="0" y="0" width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="{COLOURS["grid"]}"/>'], 0.0
    for index, share in enumerate(shares):
        width, opacity = _WIDTH * min(share, 1.0), (1.0, 0.65, 0.4)[index % 3]
        shape = f'x="{start:.2f}" y="0" width="{width:.2f}" height="{_HEIGHT:g}"'
        pieces.append(f'<rect {shape} fill="{COLOURS["main"]}" fill-opacity="{opacity:g}"/>')
        start += width
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">{"".join(pieces)}</svg>'


def _over_time(account: dict[str, Any]) -> Picture | None:
    """What was left at every time; None before a second entry."""
    instants = [datetime.fromisoformat(point["at"]) for point in account["history"]]
    first, last = instants[0], instants[-1]
    if first == last:
        return None
    seconds = [(instant - first).total_seconds() for instant in instants]
    left = [100.0 * max(1.0 - point["share"], 0.0) for point in account["history"]]
    look = {"drawstyle": "steps-post", "color": COLOURS["main"], "linewidth": 2}
    form = "%d %b %Y" if (last - first).days > 2 else "%d %b, %H:%M"
    settings = {
        "ylim": (0, 103),
        "ylabel": "% of the budget left",
        "xlabel": "",
        "xticks": (0.0, seconds[-1]),
        "xticklabels": (f"{first:{form}}", f"{last:{form}}"),
    }
    return Picture("What was left, over time.", Panel([Series(seconds, left, look)], settings), height=2.2)


def _reservation(line: dict[str, Any]) -> tuple[str, ...]:
    *_, by, why, epsilon, what, guarantee = reservation_cells(line)
    artefact = f"artefact {line['artefact'][:16]}" if line["artefact"] else ""
    released = f"{_STATES[line['state']]} {_time(line['settled_at']) if line['settled_at'] else ''}".strip()
    words = "; ".join(dict.fromkeys(filter(None, (what, guarantee, artefact, line["reason"]))))
    return _time(line["at"]), epsilon, by, why, f"{released}: {words}"


def _time(at: str) -> str:
    """A time of an entry, in UTC, such as `2026-11-29 23:40`."""
    return at[:16].replace("T", " ")


def _percent(share: float) -> str:
    return f"{100.0 * min(share, 1.0):.1f} %"


def _percent_left(share: float) -> str:
    """What is left where this share is spent: never more than there is, such as `61.9 %`."""
    return f"{floor(1000.0 * max(1.0 - share, 0.0)) / 10.0:.1f} %"

"""An audit as one page: an HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
from html import escape

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult
from lethe.report.audit_tables import audit_cells, crossed, notes_of

_STYLE = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1em }
table { border-collapse: collapse } th, td { text-align: left; padding: .3em 1em .3em 0; vertical-align: top }
td.number { text-align: right; white-space: nowrap } ul { margin: 0; padding-left: 1em; font-size: smaller }
img { max-width: 100% } .crossed { color: #d00000; font-weight: bold }
.verdict { border: 2px solid; padding: 1em; font-weight: bold; color: #8a6d00 }
.consistent { color: #00704f } .refuted, .void { color: #d00000 }
"""


def audit_html(page: AuditPage, picture: bytes, certificate: str | None = None) -> bytes:
    """The certificate above, the audits below it, the picture, and the verdict last.

    Args:
        page: claim, audits, verdict.
        picture: PNG, from `audit_plot`.
        certificate: in words, where there is one.
    """
    claim = "\n".join(page.stated[2:]) or "nothing"  # subject and canary stand above it
    above = claim if certificate is None else certificate
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(page.subject)}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{escape('audit of ' + page.subject)}</h1><p>canary: {escape(page.canary)}</p>",
        f"<h2>Claimed from above</h2><pre>{escape(above)}</pre>",
        f"<h2>Found from below</h2>{_found(page)}",
        f'<img alt="claim and audits" src="data:image/png;base64,{base64.b64encode(picture).decode()}">',
        f'<p class="verdict {"powerless" if page.powerless else page.verdict}">{escape(page.says)}</p></body></html>',
    ]
    return "\n".join(parts).encode()


def _found(page: AuditPage) -> str:
    if not page.audits:
        return f"<p>{escape(str(page.refused))}</p>"
    heads = "".join(f"<th>{name}</th>" for name in ("kind", "epsilon", "delta", "wrong at most", "adversary", ""))
    return f"<table><tr>{heads}</tr>{''.join(_row(page, result) for result in page.audits)}</table>"


def _row(page: AuditPage, result: AuditResult) -> str:
    kind, *numbers, adversary = map(escape, audit_cells(result))
    cells = [f"<td>{kind}</td>", *(f'<td class="number">{number}</td>' for number in numbers), f"<td>{adversary}</td>"]
    notes = "".join(f"<li>{escape(note)}</li>" for note in notes_of(result))
    look = "crossed" if crossed(page, result) else result.kind
    return f'<tr class="{look}">{"".join(cells)}<td><ul>{notes}</ul></td></tr>'

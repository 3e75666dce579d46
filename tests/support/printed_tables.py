"""Tables as a terminal of a given width shows them."""

import io

from rich.console import Console


def printed(*tables: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.export_text()

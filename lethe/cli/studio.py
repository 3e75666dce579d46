"""The verb `lethe studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.run.run import Run


def studio(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run to begin with: .yaml or .json.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Where to listen on this computer; 0: any free port; default: 8421.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Plan a run in the browser: what every choice costs, as it is made. Only this computer can open the page.

    Such as: lethe studio run.yaml --no-browser
    """
    from lethe.studio.server import serve  # the page needs the optional Shiny
    from lethe.studio.state import State

    first = State.first() if run is None else State.of_run(Run.load(run))
    serve(first, port=port, browser=browser, told=_told)


def _told(address: str) -> None:
    print(f"Lethe studio: {address} (Ctrl-C ends it)", flush=True)

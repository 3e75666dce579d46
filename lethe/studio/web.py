"""Shiny and the server below it, and the only imports of them.

app.py, parts.py and server.py import them from here, so that a missing package gives one error that names the extra to install.
"""

from lethe.errors import MissingExtraError

try:
    import uvicorn as uvicorn
    from htmltools import HTMLDependency as HTMLDependency
    from shiny import App as App
    from shiny import Inputs as Inputs
    from shiny import Outputs as Outputs
    from shiny import Session as Session
    from shiny import reactive as reactive
    from shiny import render as render
    from shiny import ui as ui
    from starlette.datastructures import Headers as Headers
    from starlette.requests import Request as Request
    from starlette.responses import PlainTextResponse as PlainTextResponse
except ImportError as error:
    raise MissingExtraError("the studio needs Shiny, which is not installed.", remedy='pip install "lethe-dp[studio]"') from error

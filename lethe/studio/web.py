"""Shiny and the server below it, and the only imports of them."""

from __future__ import annotations

from lethe.errors import MissingExtraError

try:
    import uvicorn
    from htmltools import HTMLDependency
    from shiny import App, Inputs, Outputs, Session, reactive, render, ui
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
except ImportError as error:
    raise MissingExtraError("the studio needs Shiny, which is not installed.", remedy='pip install "lethe-dp[studio]"') from error

__all__ = [
    "App",
    "HTMLDependency",
    "Headers",
    "Inputs",
    "Outputs",
    "PlainTextResponse",
    "Request",
    "Session",
    "reactive",
    "render",
    "ui",
    "uvicorn",
]

"""Shiny and the server below it, and the only imports of them."""

from __future__ import annotations

from lethe.errors import MissingExtraError

try:
    import h11
    import uvicorn
    from htmltools import HTMLDependency
    from shiny import App, Inputs, Outputs, Session, reactive, render, ui
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError("the studio needs Shiny, which is not installed.", remedy='pip install "lethe-dp[studio]"') from error

__all__ = [
    "App",
    "H11Protocol",
    "HTMLDependency",
    "Headers",
    "Inputs",
    "Outputs",
    "PlainTextResponse",
    "Request",
    "Session",
    "h11",
    "reactive",
    "render",
    "ui",
    "uvicorn",
]

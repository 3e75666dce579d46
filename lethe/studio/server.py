"""The server of the planner: on this computer only, for pages of its own only.

`lethe studio` calls `serve`. The page shows private plans, so other machines, and other pages in the same browser, are refused.
"""

import socket
import webbrowser
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from lethe.errors import InputError
from lethe.studio.app import make_app
from lethe.studio.state import State
from lethe.studio.web import Headers, PlainTextResponse, uvicorn

LOOPBACK = "127.0.0.1"
USUAL_PORT = 8421
"""The same every time, so that links that were kept still work."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws://{host}; frame-ancestors 'none'; form-action 'none'; base-uri 'none'"
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class OwnPagesOnly:
    """An application that refuses requests for another host's name, and from another site's pages; browsers are to ask no other host.

    A page from elsewhere may send requests to this computer, also under a name that its owner lets point here.
    """

    def __init__(self, inner: Callable[..., Awaitable[None]], port: int) -> None:
        self._inner = inner
        self._hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts or origin not in (None, f"http://{host}"):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse("lethe studio answers pages of its own only.\n", status_code=403)(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                policy = [(b"content-security-policy", _POLICY.format(host=host).encode()), (b"referrer-policy", b"no-referrer")]
                message["headers"] = [*message.get("headers", ()), *policy]
            await send(message)

        await self._inner(scope, receive, with_policy)


def listen(port: int | None) -> socket.socket:
    """A socket that no other computer reaches, at this port, 0: any that is free, None: the usual one, or any; InputError of one in use."""
    if port is None:
        try:
            return listen(USUAL_PORT)
        except InputError:
            return listen(0)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        what = f"--port {port}: it cannot be used: {error.strerror or error}."
        raise InputError(what, remedy="give another one, or none.") from error
    return listening


def serve(first: State, *, port: int | None, browser: bool, report_address: Callable[[str], None]) -> None:
    """Serve the planner, `first` at first, until it is interrupted; `report_address` is called with the address."""
    with listen(port) as listening:
        bound_port = listening.getsockname()[1]
        address = f"http://{LOOPBACK}:{bound_port}/"
        server = uvicorn.Server(
            uvicorn.Config(
                OwnPagesOnly(make_app(first), bound_port),
                log_config=None,  # its own would close the handlers of whoever called
                log_level="warning",
                lifespan="on",
                timeout_graceful_shutdown=2,
            )
        )
        report_address(address)
        if browser:
            webbrowser.open(address)  # the socket listens already: an early request waits and is not refused
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            return

"""The verbs of the page docs/cli.md, written from the command itself while the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from lethe.cli.app import app


def verbs_page() -> str:
    """A section a verb: what it does, an example, and its arguments and options with their help."""
    return "\n".join(_section(name, verb) for name, verb in _verbs("lethe", get_command(app)))


def _verbs(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Those of a group by the words that call them; a command is one by itself."""
    if not hasattr(command, "commands"):
        yield name, command
    for word, verb in getattr(command, "commands", {}).items():
        yield from _verbs(f"{name} {word}", verb)


def _section(name: str, verb: Any) -> str:
    summary, _, example = (verb.help or "").partition("Such as: ")
    rows = [f"| `{_written(parameter)}` | {parameter.help or ''} |" for parameter in verb.params if not getattr(parameter, "hidden", False)]
    shown = f"\n```sh\n{example.strip()}\n```\n" if example else ""
    return "\n".join([f"### {name}", "", summary.strip(), shown, "| | |", "|---|---|", *rows, ""])


def _written(parameter: Any) -> str:
    """An argument by its name, an option as it is typed; what may be left out in brackets."""
    if parameter.param_type_name == "argument":
        text = parameter.metavar or parameter.name.upper()
    else:
        text = ", ".join(parameter.opts) + ("" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}")
    return text if parameter.required else f"[{text}]"

"""The verbs of the page docs/cli.md and what they print with --json, written from the command itself while the site is built."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

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


_RUN = """\
records: 6000
batches: {design: cyclic, size: 600}
passes: 2
step_size: 0.5
noise_multiplier: 10.0
loss: {kind: softmax_regression, feature_norm: 1.0}
release: last
"""
_COMMANDS = (
    "certify run.yaml --delta 1e-6 -o certificate.json",
    "plan run.yaml --epsilon 1 --delta 1e-6 --schedule uniform",
    "compare run.yaml --delta 1e-6 --theorems optimal-shift,composition",
    "compare run.yaml --delta 1e-6 --theorems optimal-shift,composition --over noise --values 5,10",
    "verify certificate.json",
    "total certificate.json --count 2 --delta 1e-6",
    "report certificate.json",
)


def json_page() -> str:
    """What verbs print with --json, by the names of its entries: they are run, on a small run."""
    parts = []
    with TemporaryDirectory() as folder, chdir(folder):
        Path("run.yaml").write_text(_RUN)
        for command in _COMMANDS:
            outcome = CliRunner().invoke(app, [*shlex.split(command), "--json", *([] if command.startswith("verify") else ["--quiet"])])
            shown = textwrap.fill(_names(json.loads(outcome.stdout)), 110, subsequent_indent=" ", break_long_words=False)
            parts.append(f"`lethe {command.partition(' -o ')[0]} --json`\n\n```\n{shown}\n```\n")
    return "\n".join(parts)


def _names(value: Any, depth: int = 0) -> str:
    """The keys of a document, two levels deep, runs and certificates by themselves; of a list those of its first entry."""
    if isinstance(value, list):
        return f"[{_names(value[0], depth)}, ...]" if value and isinstance(value[0], dict | list) else "[...]"
    if not isinstance(value, dict):
        return ""
    if depth > 1:
        return "{...}"
    depths = {key: 2 if key in ("run", "certificate") else depth + 1 for key in value}
    entries = [f'"{key}": {inner}' if (inner := _names(entry, depths[key])) else f'"{key}"' for key, entry in value.items()]
    return "{" + ", ".join(entries) + "}"

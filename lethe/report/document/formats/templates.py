"""Templates of the report, and the only import of jinja2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lethe.errors import MissingExtraError

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise MissingExtraError("reports need jinja2, which is not installed.", remedy='pip install "lethe-dp[report]"') from error


def rendered(template: str, *, escape: bool, filters: dict[str, Callable[..., str]] | None = None, **content: Any) -> str:
    """A template of this package, filled in.

    Args:
        template: its file name.
        escape: whether everything that is filled in is escaped for HTML, unless it is marked as safe.
        filters: functions by their names in the template.
        content: what is filled in.
    """
    environment = Environment(
        loader=PackageLoader("lethe.report"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(template).render(**content)

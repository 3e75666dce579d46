"""The report of a training, for whoever reads or signs it; tables and plots of numbers computed elsewhere.

lethe.report.write(certificate, "report.html")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.report.document.writing import write

__all__ = ["write"]


def __getattr__(name: str) -> Any:
    """What a report needs is loaded when it is asked for: `import lethe` loads this package."""
    if name != "write":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lethe.report.document.writing import write

    return write

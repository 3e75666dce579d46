"""The report of a training, for whoever reads or signs it; tables and plots of numbers computed elsewhere.

lethe.report.write(certificate, "report.html")
"""

from typing import TYPE_CHECKING, Any

from lethe.errors.names import refuse_old_name

if TYPE_CHECKING:
    from lethe.report.writing import write

__all__ = ["write"]


def __getattr__(name: str) -> Any:
    """What a report needs is loaded when it is asked for: `import lethe` loads this package."""
    if name != "write":
        refuse_old_name(__name__, name)
    from lethe.report.writing import write

    return write


def figure_of(result: Any) -> Any:
    """The matplotlib Figure of a comparison or a sweep, made without pyplot: show it in a notebook, or call its `savefig`."""
    from lethe.report.plots import comparison_figure, sweep_figure  # plots need the optional matplotlib

    content = result.to_dict()
    return sweep_figure(content) if "over" in content else comparison_figure(content)

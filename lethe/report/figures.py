"""Figures of comparisons and sweeps for `plot()`; matplotlib is loaded when the first is drawn."""

from __future__ import annotations

from typing import Any

from lethe.certificates.comparison import Comparison, Sweep


def figure_of(shown: Comparison | Sweep) -> Any:
    """The matplotlib Figure, made without pyplot: show it in a notebook, or call its `savefig`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    from lethe.report.plots import comparison_figure, sweep_figure  # plots need the optional matplotlib

    content = shown.to_dict()
    return comparison_figure(content) if isinstance(shown, Comparison) else sweep_figure(content)

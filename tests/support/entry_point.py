"""The real entry point of the command, with its error handling."""

import sys

import pytest

from lethe.cli.app import main


def status(*words: object) -> int:
    """The exit status of `lethe` with these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lethe", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0)

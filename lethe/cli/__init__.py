"""The command `lethe`: verbs only, every one a call of the library."""

from lethe.cli.app import main as main

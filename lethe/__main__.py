"""`python -m lethe` is the command `lethe`."""

from lethe.cli import main

main()

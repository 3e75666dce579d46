"""Configurations that `lethe init` writes, with the questions that it may not answer."""

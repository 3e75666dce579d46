"""Statements read from files: computed again from the numbers of their mechanisms."""

"""Theorems: privacy bounds of a run, as pure functions of numbers and as classes that check their hypotheses."""

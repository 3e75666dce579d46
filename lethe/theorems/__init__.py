"""Judges: what is proved about a run, as pure functions of numbers and as theorems with their hypotheses."""

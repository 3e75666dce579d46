"""Balls in bins: the privacy profile of a record that is in one bin of several, drawn once."""

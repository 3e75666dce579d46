"""Composition: what several mechanisms on the same data spend together."""

"""Pipelines: what everything fitted on the same data costs together."""

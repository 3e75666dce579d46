"""Means in the shuffle model of privacy: local randomisers, a shuffler, analysers, and the oracles built of them."""

from __future__ import annotations

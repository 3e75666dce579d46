"""Loops of one's own whose trained parameters are watched, for each release."""

from __future__ import annotations

from typing import Any, Literal

from networks import make_network_run
from private_loops import Loop

Release = Literal["all", "last"]
RELEASES: tuple[Release, Release] = ("all", "last")


def make_loop(release: Release, **options: Any) -> Loop:
    return Loop(make_network_run(release=release, noise_multiplier=1.0), **options)

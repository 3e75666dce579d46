"""Loops of one's own whose trained parameters are watched, and the releases of `fit`, which watches them as well."""

from __future__ import annotations

from typing import Any, Literal

from networks import make_network_run
from private_loops import Loop

Release = Literal["all", "last"]
RELEASES: tuple[Release, Release] = ("all", "last")


def make_loop(**options: Any) -> Loop:
    return Loop(make_network_run(noise_multiplier=1.0), **options)

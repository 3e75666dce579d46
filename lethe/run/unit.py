"""The unit of privacy of a Run: what is clipped once, is drawn into batches, and enters or leaves as a whole."""

from __future__ import annotations

from typing import Literal

Unit = Literal["record", "user"]
"""record: each record by itself. user: all records of one user together; `records` of the Run then counts users."""

NOUNS: dict[Unit, tuple[str, str]] = {"record": ("record", "records"), "user": ("user", "users")}
"""A unit in words: one, and several."""

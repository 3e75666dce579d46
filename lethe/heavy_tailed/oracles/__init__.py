"""Mean oracles: how a batch of gradients becomes one noisy mean, and what that costs."""

from __future__ import annotations

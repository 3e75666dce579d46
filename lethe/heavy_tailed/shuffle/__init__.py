"""Means in the shuffle model of privacy: local randomisers, a shuffler, analysers, and the oracles built of them."""

from __future__ import annotations

from lethe.heavy_tailed.shuffle.oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.shuffle.scalar import ScalarProtocol, analyse, calibrated_protocol, chosen_protocol, local_messages, shuffled

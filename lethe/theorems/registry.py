"""Every theorem Lethe knows, in the order in which ties are settled."""

from __future__ import annotations

from lethe.theorems.base import Theorem
from lethe.theorems.composition import Composition
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.sampling import SampledGaussianMechanism

ALL: tuple[Theorem, ...] = (OptimalShift(), SampledGaussianMechanism(), Composition())

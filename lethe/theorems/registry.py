"""Every theorem Lethe knows, in the order in which ties are settled."""

from __future__ import annotations

from lethe.theorems.base import Theorem
from lethe.theorems.composition import Composition
from lethe.theorems.literature.feldman_2018 import Feldman2018
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.sampling import SampledGaussianMechanism

OURS: tuple[Theorem, ...] = (OptimalShift(), SampledGaussianMechanism(), Composition())
"""What `certify` and `plan` try: together never looser than any sound published bound."""

LITERATURE: tuple[Theorem, ...] = (Feldman2018(),)
"""Published bounds, as their papers state them; shown by `compare` and by `certify --all`."""

ALL: tuple[Theorem, ...] = (*OURS, *LITERATURE)

"""The shift engine: the privacy of the last iterate of a noisy iteration, for any Lipschitz constants."""

from lethe.theorems.shift.engine import Shift, solve

"""Private stochastic optimisation where gradients have moments but no bound: problems, mean oracles and solvers, in NumPy."""

from functools import partial

from lethe.errors.names import refuse_old_name
from lethe.heavy_tailed.multi_pass import multi_pass, practical_oracle
from lethe.heavy_tailed.problem import Moments, Problem
from lethe.heavy_tailed.sets import BallDomain

__all__ = ["BallDomain", "Moments", "Problem", "multi_pass", "practical_oracle"]

__getattr__ = partial(refuse_old_name, __name__)

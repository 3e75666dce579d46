"""Private stochastic optimisation where gradients have moments but no bound: problems, mean oracles and solvers, in NumPy."""

from __future__ import annotations

from lethe.heavy_tailed.localisation.solver import localised
from lethe.heavy_tailed.moments import Moments
from lethe.heavy_tailed.multi_pass import multi_pass, practical_oracle
from lethe.heavy_tailed.problem import Problem
from lethe.heavy_tailed.sets import BallDomain
from lethe.heavy_tailed.single_pass.accelerated import accelerated
from lethe.heavy_tailed.single_pass.proximal import proximal
from lethe.heavy_tailed.single_pass.solver import one_pass

__all__ = ["BallDomain", "Moments", "Problem", "accelerated", "localised", "multi_pass", "one_pass", "practical_oracle", "proximal"]

"""Private stochastic optimisation where gradients have moments but no bound: problems, mean oracles and solvers, in NumPy."""

from __future__ import annotations

from lethe.heavy_tailed.localisation.plans import localised_practical, localised_theory
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.localisation.solver import localised, regularised_descent
from lethe.heavy_tailed.localisation.strongly_convex import strongly_convex
from lethe.heavy_tailed.moments import Moments
from lethe.heavy_tailed.multi_pass import multi_pass, practical_oracle
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.oracles.coordinate import CoordinateMedian
from lethe.heavy_tailed.oracles.exact import ExactMean
from lethe.heavy_tailed.private_moments import MomentEstimate, estimated_moments, private_moment
from lethe.heavy_tailed.problem import Problem
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, WholeSpace
from lethe.heavy_tailed.shuffle.oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.single_pass.accelerated import accelerated
from lethe.heavy_tailed.single_pass.accelerated_plans import accelerated_optimised, accelerated_practical, accelerated_theory
from lethe.heavy_tailed.single_pass.plans import one_pass_optimised, one_pass_practical, one_pass_theory
from lethe.heavy_tailed.single_pass.proximal import proximal, proximal_optimised, proximal_practical, proximal_theory
from lethe.heavy_tailed.single_pass.settings import Plan
from lethe.heavy_tailed.single_pass.solver import one_pass
from lethe.heavy_tailed.solution import Phase, Solution

__all__ = [
    "Ball",
    "Box",
    "ClippedMean",
    "CoordinateMedian",
    "ExactMean",
    "MeanOracle",
    "MomentEstimate",
    "Moments",
    "Phase",
    "Plan",
    "Problem",
    "ShuffledClippedMean",
    "ShuffledCoordinateMedian",
    "Solution",
    "WholeSpace",
    "accelerated",
    "accelerated_optimised",
    "accelerated_practical",
    "accelerated_theory",
    "estimated_moments",
    "localised",
    "localised_practical",
    "localised_theory",
    "multi_pass",
    "one_pass",
    "one_pass_optimised",
    "one_pass_practical",
    "one_pass_theory",
    "practical_oracle",
    "private_moment",
    "proximal",
    "proximal_optimised",
    "proximal_practical",
    "proximal_theory",
    "regularised_descent",
    "sampled_localised",
    "strongly_convex",
]

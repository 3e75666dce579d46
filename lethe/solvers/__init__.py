"""Private stochastic optimisation where gradients have moments but no bound: problems, mean oracles and solvers, in NumPy."""

from __future__ import annotations

from lethe.solvers.accelerated import accelerated
from lethe.solvers.accelerated_plans import accelerated_optimised, accelerated_practical, accelerated_theory
from lethe.solvers.localised import localised, regularised_descent
from lethe.solvers.localised_plans import localised_practical, localised_theory
from lethe.solvers.lower_bounds import LowerBound, convex_lower_bound, strongly_convex_lower_bound
from lethe.solvers.moments import Moments
from lethe.solvers.multi_pass import multi_pass, practical_oracle
from lethe.solvers.one_pass import one_pass
from lethe.solvers.one_pass_plans import one_pass_optimised, one_pass_practical, one_pass_theory
from lethe.solvers.oracles import ClippedMean, CoordinateMedian, ExactMean, MeanOracle
from lethe.solvers.plan import Plan
from lethe.solvers.private_moments import MomentEstimate, estimated_moments, private_moment
from lethe.solvers.problem import Problem
from lethe.solvers.proximal import proximal, proximal_optimised, proximal_practical, proximal_theory
from lethe.solvers.sampled_localised import sampled_localised
from lethe.solvers.sets import Ball, Box, WholeSpace
from lethe.solvers.shuffle import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.solvers.solution import Phase, Solution
from lethe.solvers.strongly_convex import strongly_convex

__all__ = [
    "Ball",
    "Box",
    "ClippedMean",
    "CoordinateMedian",
    "ExactMean",
    "LowerBound",
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
    "convex_lower_bound",
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
    "strongly_convex_lower_bound",
]

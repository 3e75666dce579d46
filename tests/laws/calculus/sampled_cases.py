"""Sampled Gaussians for the tests of several modules."""

from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.renyi import Design, Relation


def steps(q: float, z: float, count: int, relation: Relation = "zero_out", design: Design = "poisson") -> SampledGaussian:
    """So many steps at one noise level."""
    return SampledGaussian(sampling_probability=q, noise=(z,), counts=(count,), relation=relation, design=design)

"""Earlier ways to divide a noise budget along the way: DP-AGD of Lee and Kifer 2018, and the validation decay of Yu et al. 2019."""

from lethe_experiments.adaptive.descent import AdaptivelyTrained, AdaptiveStep, train_adaptively
from lethe_experiments.adaptive.plan import AdaptiveDescent
from lethe_experiments.adaptive.validation_decay import ValidationDecay

__all__ = ["AdaptiveDescent", "AdaptiveStep", "AdaptivelyTrained", "ValidationDecay", "train_adaptively"]

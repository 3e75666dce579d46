"""Clipping: sums of per-record clipped gradients of any PyTorch module, without forming the gradients where that can be helped."""

from lethe.train.clipping.engine import Clipper
from lethe.train.clipping.groups import METHODS, Group, Method
from lethe.train.clipping.rules.registry import RULES, register_rule
from lethe.train.clipping.rules.rule import LayerGradients, Rule, Use
from lethe.train.clipping.units import Units

__all__ = ["METHODS", "RULES", "Clipper", "Group", "LayerGradients", "Method", "Rule", "Units", "Use", "register_rule"]

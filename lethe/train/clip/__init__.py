"""Clipped sums of records' gradients, of any model and any function of a batch to one loss a record."""

from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, Group, Method
from lethe.train.clip.parts.outer_products import OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients
from lethe.train.clip.parts.token_rows import TokenRows
from lethe.train.clip.rules.registry import register_rule
from lethe.train.clip.rules.rule import Call
from lethe.train.clip.ways.layers import per_layer

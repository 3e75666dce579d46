"""The verbs of accounting: certify, plan, compare, verify, privacy that is spent over time, and how well records are forgotten."""

from lethe.theorems.unlearning import Unlearning as Unlearning
from lethe.theorems.unlearning import certify_unlearning as certify_unlearning

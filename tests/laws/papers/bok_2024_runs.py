"""What runs of the bounds of Bok et al. 2024 are made of."""

import lethe
from lethe.theorems.base import Theorem

BALL = {"kind": "ball", "radius": 0.5}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.2, "smoothness": 1.0, "gradient_bound": 1.0}
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}


def mu_of(theorem: Theorem, run: lethe.Run) -> float:
    guarantee = theorem.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu

"""The number of a guarantee that has to be Gaussian."""

import lethe


def mu_of(guarantee: lethe.Guarantee) -> float:
    assert isinstance(guarantee, lethe.GDP)
    return guarantee.mu

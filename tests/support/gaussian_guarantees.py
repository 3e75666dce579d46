"""The number of a guarantee that has to be Gaussian."""

import lethe


def mu_of(guarantee: lethe.guarantees.Guarantee) -> float:
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu

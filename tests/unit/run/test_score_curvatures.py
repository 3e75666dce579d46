"""Curvatures kept as a diagonal and terms of rank one: products and sums are those of the matrices."""

import numpy as np
import pytest

from lethe.run.losses.curvatures import Curvatures


def test_products_and_sums_are_those_of_the_matrices() -> None:
    rng = np.random.default_rng(0)
    terms = tuple((rng.standard_normal(7), rng.standard_normal((7, 3))) for _ in range(2))
    curvatures, directions = Curvatures(rng.random((7, 3)), terms), rng.standard_normal((7, 3))
    expected = [
        np.diag(curvatures.diagonal[record]) + sum(factor[record] * np.outer(vectors[record], vectors[record]) for factor, vectors in terms)
        for record in range(7)
    ]
    assert curvatures.dense() == pytest.approx(np.array(expected), abs=1e-14)
    products = [matrix @ direction for matrix, direction in zip(expected, directions, strict=True)]
    assert curvatures.times(directions) == pytest.approx(np.array(products), abs=1e-14)
    assert curvatures.sum() == pytest.approx(sum(expected), abs=1e-13)
    narrow = curvatures.scaled(0.25, np.float32)
    assert narrow.dense() == pytest.approx(4.0 * curvatures.dense(), rel=1e-6, abs=1e-5)
    assert narrow.times(directions.astype(np.float32)).dtype == np.float32

"""Strategies and workloads as arrays, of shape (T,) or (T, T).

Correlated noise (the matrix mechanism) is $C^{-1}z$, z fresh noise, one row a step: C is the strategy. The workload A maps the gradients of
T steps to what is released. `run.noise` makes strategies with these functions; `sensitivity` and `optimum` compute with them.

Both are lower-triangular matrices. An array of shape (T,) is the first column of a Toeplitz matrix, which has the same entries along each
diagonal; one of shape (T, T) is the matrix itself.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, special

from lethe.calculus.domains import FloatArray, outside, require_count, require_vector
from lethe.calculus.rounding import above

MOST_DENSE = 4096
"""Steps beyond which no matrix is written out: 128 MiB."""

# Products of a few of these, summed over all steps, neither vanish nor overflow.
_SMALLEST_ENTRY, _LARGEST_ENTRY = 1e-60, 1e60


def require_strategy(strategy: ArrayLike) -> FloatArray:
    """A strategy C as an array, or raise InputError: the first column of a Toeplitz matrix, shape (T,), with no negative entry, the first
    > 0; or a lower-triangular matrix, shape (T, T) with T <= 4096, with a positive diagonal.
    """
    array = real_array("strategy", strategy)
    if array.ndim == 1:
        array = require_vector("strategy", array, low=0.0)
        diagonal = array[:1]
    else:
        array = _require_triangular(array)
        diagonal = np.diagonal(array)
    if not (diagonal.min() >= _SMALLEST_ENTRY and np.abs(array).max() <= _LARGEST_ENTRY):
        raise outside("strategy", f"a diagonal from {diagonal.min():g} and entries up to {np.abs(array).max():g}", "1e-60 to 1e60")
    return array


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Numbers of any shape as float64, or raise InputError: text, dates, complex and masked numbers would become others without a word."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iufO" and not np.ma.is_masked(values):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise outside(name, values, "an array of real numbers")


def _require_triangular(matrix: FloatArray) -> FloatArray:
    """A lower-triangular matrix with a positive diagonal, or InputError."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise outside("strategy", f"shape {matrix.shape}", "shape (T,), the first column of a Toeplitz matrix, or (T, T)")
    if len(matrix) > MOST_DENSE:
        raise outside("strategy", f"{len(matrix)} steps", f"at most {MOST_DENSE} steps, or a Toeplitz strategy")
    if not np.isfinite(matrix).all():
        raise outside("strategy", "an entry that is not finite", "finite numbers")
    if np.triu(matrix, 1).any():
        raise outside("strategy", "an entry above the diagonal", "a lower-triangular matrix: noise must not depend on later steps")
    if not np.diagonal(matrix).min() > 0:
        raise outside("strategy", f"the diagonal entry {np.diagonal(matrix).min():g}", "a positive diagonal, so that it has an inverse")
    return matrix


def as_matrix(array: FloatArray) -> FloatArray:
    """The lower-triangular matrix that an array stands for, shape (T, T)."""
    if array.ndim == 2:
        return array
    return np.tril(linalg.toeplitz(array))


def prefix_sums(steps: int) -> FloatArray:
    """The workload of plain SGD: all partial sums of the gradients, as a Toeplitz column of shape (T,)."""
    return np.ones(require_count("steps", steps))


def sgd_workload(step_sizes: ArrayLike, *, momentum: float = 0.0) -> FloatArray:
    r"""The workload of SGD with step sizes and momentum: $A_{ts} = \sum_{r=s}^t \lambda_r\beta^{r-s}$.

    With $v_t = \beta v_{t-1} + g_t$ and $x_t = x_{t-1} - \lambda_t v_t$ the iterates are $x_t = x_0 - \sum_s A_{ts} g_s$. Where all steps
    $\lambda_t > 0$, shape (T,), are of one size a Toeplitz column of shape (T,), else, for at most 4096 steps, shape (T, T).
    """
    sizes = require_vector("step_sizes", step_sizes, low=0.0, strict=True)
    if not 0.0 <= momentum < 1.0:
        raise outside("momentum", momentum, "a number in [0, 1)")
    powers = momentum ** np.arange(len(sizes), dtype=np.float64)
    if sizes.min() == sizes.max():
        return np.asarray(sizes[0] * np.cumsum(powers), dtype=np.float64)
    if len(sizes) > MOST_DENSE:
        raise outside("step_sizes", f"{len(sizes)} steps of several sizes", f"at most {MOST_DENSE}")
    return np.asarray(np.cumsum(sizes[:, None] * np.tril(linalg.toeplitz(powers)), axis=0), dtype=np.float64)


def square_root(steps: int, bands: int | None = None) -> FloatArray:
    r"""The square root of the prefix sums, cut to its first `bands` where given: $c_k = \binom{2k}{k}4^{-k}$, shape (T,).

    Reference: Fichtenberger, Henzinger, Upadhyay 2022, arXiv:2202.11205 (without cutting it is optimal among Toeplitz matrices for one
        participation, up to lower order).
    """
    steps = require_count("steps", steps)
    order = np.arange(steps, dtype=np.float64)
    column = np.exp(special.gammaln(order + 0.5) - special.gammaln(order + 1.0) - 0.5 * np.log(np.pi))
    column[0] = 1.0
    if bands is not None:
        column[require_count("bands", bands) :] = 0.0
    return column


def binary_tree(steps: int) -> FloatArray:
    r"""The binary tree with its best decoder: the lower-triangular C, shape (T, T), T <= 4096, for which $(C^\top C)_{ss'}$ is the number
    of nodes above both s and s'.

    The tree releases noisy sums over dyadic intervals. What it tells of the prefix sums, decoded without bias and with the smallest
    variance, depends on $C^\top C$ alone. Reference: Dwork, Naor, Pitassi, Rothblum 2010; Honaker 2015 (the decoder).
    """
    steps = require_count("steps", steps, high=MOST_DENSE)
    leaves = np.arange(steps)
    gram = np.zeros((steps, steps))
    for level in range((steps - 1).bit_length() + 1):
        nodes = leaves >> level
        gram += nodes[:, None] == nodes[None, :]
    # The Cholesky factor of the matrix read backwards, read backwards: lower-triangular L with L^T L instead of L L^T.
    factor: FloatArray = linalg.cholesky(gram[::-1, ::-1], lower=True)
    return factor.T[::-1, ::-1].copy()


def blt_column(scales: ArrayLike, decays: ArrayLike, steps: int) -> FloatArray:
    r"""The first column of a buffered linear Toeplitz matrix: $c_0 = 1$, $c_k = \sum_i \omega_i\theta_i^{k-1}$, shape (T,).

    Scales $\omega_i \ge 0$ and decays $\theta_i \in [0, 1)$ have shape (d,). Reference: McMahan, Xu, Zhang 2024, arXiv:2408.08868;
    Dvijotham et al. 2024, arXiv:2404.16706.
    """
    steps = require_count("steps", steps)
    omegas, thetas = require_vector("scales", scales, low=0.0), require_vector("decays", decays, low=0.0)
    if len(omegas) != len(thetas):
        raise outside("decays", f"{len(thetas)} numbers", f"as many as there are scales, {len(omegas)}")
    if not thetas.max() < 1.0:
        raise outside("decays", float(thetas.max()), "numbers in [0, 1)")
    column = np.ones(steps)
    powers = np.arange(steps - 1, dtype=np.float64)
    with np.errstate(under="ignore"):
        column[1:] = sum(omega * theta**powers for omega, theta in zip(omegas.tolist(), thetas.tolist(), strict=True))
    return column


def inverse_column(coefficients: ArrayLike, steps: int) -> FloatArray:
    r"""The first column of C, shape (T,), where $C^{-1}$ is Toeplitz and banded: $c_0 = 1/d_0$, $c_t = \sum_{k=1}^{p-1}|d_k|c_{t-k}/d_0$.

    Coefficients d of $C^{-1}$, shape (p,): $d_0 > 0$, the others $\le 0$, and together $\ge 0$; so no entry of C is negative, nor above
    $1/d_0$. Rounded up: each entry is made of at most T (p + 2) roundings of what is not negative. Reference: Kalinin, McKenna, Upadhyay,
    Lampert 2025, arXiv:2505.12128.
    """
    steps, array = require_count("steps", steps), real_array("coefficients", coefficients)
    if array.ndim != 1 or not (
        array.size and _SMALLEST_ENTRY <= array[0] <= _LARGEST_ENTRY and np.all(array[1:] <= 0.0) and math.fsum(array) >= 0.0
    ):
        raise outside("coefficients", array.tolist(), "one number above 0, then none above 0, that sum to 0 or more, such as 1, -0.9")
    from scipy import signal  # which loads scipy.stats: importing lethe stays light

    column = np.asarray(signal.lfilter([1.0], array, np.append(1.0, np.zeros(steps - 1))), dtype=np.float64)
    return above(np.maximum(column, 0.0), (len(array) + 2) * steps * 2.0**-52)

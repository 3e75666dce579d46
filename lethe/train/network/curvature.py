"""An estimate of the curvature of a network's loss at one point: evidence for a declaration of smoothness, never a proof. Users call
`estimate_curvature` before they declare a smoothness constant to a last-iterate theorem; no certificate uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from lethe.calculus.domains import require_count, require_positive
from lethe.errors import InputError, LetheError
from lethe.train.core.tensors import checked_tensors, dimension

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvatureEstimate:
    r"""The extreme eigenvalues of a Hessian, as power iteration left them.

    Args:
        largest: of the Rayleigh quotients found; the largest eigenvalue is not below it, beyond rounding.
        smallest: the smallest eigenvalue is not above it.
        largest_residual: $\|Hv - \theta v\|$ at `largest`: some eigenvalue, not surely the largest, is within this distance.
        smallest_residual: the same at `smallest`.
        converged: whether both residuals came below the tolerance.
        products: Hessian-vector products computed.
        dimension: parameters.
        data: what kind of data the loss was computed on, as the caller says.
    """

    evidence: ClassVar[Literal["declared"]] = "declared"

    largest: float
    smallest: float
    largest_residual: float
    smallest_residual: float
    converged: bool
    products: int
    dimension: int
    data: Literal["public", "synthetic"]

    @property
    def smoothness(self) -> float:
        """The larger of the two sizes: the gradient's Lipschitz constant along the directions found, at this point."""
        return max(abs(self.largest), abs(self.smallest))

    def explain(self) -> str:
        """What the numbers are, and what they are not, in words."""
        wider = "" if self.converged else " (not converged: the true range is wider)"
        return (
            f"The Hessian over {self.dimension} parameters has eigenvalues from {self.smallest:.6g} to {self.largest:.6g} at this point, "
            f"on {self.data} data, after {self.products} products{wider}.\n"
            "This is no proof. A certificate needs bounds at every point and for every record; these numbers are of one point and of one "
            "loss, and power iteration approaches them from inside. Where activations have kinks (ReLU, max-pooling) no smoothness "
            "constant exists, whatever is found here. A loss declared on this basis keeps evidence: declared."
        )


def estimate_curvature(
    loss: Callable[[], Tensor],
    parameters: Iterable[Tensor],
    *,
    data: Literal["public", "synthetic"],
    iterations: int = 200,
    tolerance: float = 1e-3,
    generator: torch.Generator | None = None,
) -> CurvatureEstimate:
    r"""The largest and the smallest eigenvalue of the loss's Hessian where the parameters are now.

    Power iteration $v \leftarrow Bv/\|Bv\|$ with $B = H$ first, which gives $c \approx \max|\mathrm{eig}|$; then with $B = cI - H$ and
    $B = cI + H$, which give the two ends. H is never formed, and three vectors are kept: a product costs about one backward pass.

    Args:
        loss: computes the loss, a tensor with one number, from the parameters; deterministic (no dropout) and twice differentiable.
        parameters: require gradients; float32 or float64.
        data: what the loss is computed on. Private data is refused: this number is not accounted for, and it would be released with
            everything that is decided from it.
        iterations: products in each of the iterations, at most, >= 1.
        tolerance: an iteration ends early at a residual below this share of its eigenvalue, and has converged at one below this share of c.
        generator: for the first vectors; None: a fixed one.
    Raises:
        InputError: an argument that cannot be used.
        LetheError: the loss or its derivatives are not finite.
    """
    if data not in ("public", "synthetic"):
        raise InputError(
            f"data: got {data!r}; it needs public or synthetic.",
            source="estimate_curvature",
            remedy="estimate on data that is not private: nothing accounts for what this number tells.",
        )
    iterations, tolerance = require_count("iterations", iterations), require_positive("tolerance", tolerance)
    checked = checked_tensors(parameters)
    if not checked or not all(tensor.requires_grad for tensor in checked) or len({tensor.dtype for tensor in checked}) > 1:
        raise InputError("parameters: none, one that requires no gradient, or two types.", remedy="give the trained parameters only.")
    hessian, size = _hessian(loss, checked), dimension(checked)
    generator = torch.Generator(device=checked[0].device).manual_seed(0) if generator is None else generator

    def iterated(shift: float, sign: float) -> _End:
        start = torch.randn(size, generator=generator, dtype=checked[0].dtype, device=checked[0].device)
        return _power(hessian, start, shift, sign, iterations, tolerance)

    first = iterated(0.0, 1.0)
    ends = [first, iterated(first.scale, 1.0), iterated(first.scale, -1.0)]
    low, high = min(ends, key=lambda end: end.value), max(ends, key=lambda end: end.value)
    return CurvatureEstimate(
        largest=high.value,
        smallest=low.value,
        largest_residual=high.residual,
        smallest_residual=low.residual,
        converged=max(low.residual, high.residual) <= tolerance * first.scale,
        products=sum(end.products for end in ends),
        dimension=size,
        data=data,
    )


class _End(NamedTuple):
    value: float
    residual: float
    scale: float
    products: int


def _power(hessian: Product, vector: Tensor, shift: float, sign: float, iterations: int, tolerance: float) -> _End:
    """Power iteration with shift + sign H; `scale` of the result is the largest |Hv| met, which is at most the largest |eigenvalue|."""
    # No early end at a residual that is small beside the largest eigenvalue only: among many directions without curvature a random vector
    # starts with one.
    vector = vector / torch.linalg.vector_norm(vector)
    growth, end = 0.0, _End(0.0, 0.0, 0.0, 0)
    for iteration in range(1, iterations + 1):
        image = hessian(vector)
        value = float(vector @ image)
        growth = max(growth, float(torch.linalg.vector_norm(image)))
        if not math.isfinite(growth):
            raise LetheError("the loss's second derivative is not finite at this point.", source="the loss, or the parameters")
        end = _End(value, float(torch.linalg.vector_norm(image - value * vector)), growth, iteration)
        following = shift * vector + sign * image
        length = float(torch.linalg.vector_norm(following))
        if end.residual <= tolerance * abs(value) or length == 0.0:
            break
        vector = following / length
    return end


def _hessian(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> Product:
    """v -> Hv for flat vectors, through one graph of the gradient that is kept."""
    value = loss()
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise InputError(
            "loss: it needs to return one number that depends on the parameters.", remedy="return the mean over the records, not detached."
        )
    gradients = torch.autograd.grad(value.reshape(()), parameters, create_graph=True, materialize_grads=True)
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    if not bool(torch.isfinite(flat).all()):
        raise LetheError("the loss or its gradient is not finite at this point.", source="the loss, or the parameters")

    def product(vector: Tensor) -> Tensor:
        if not flat.requires_grad:
            return torch.zeros_like(vector)
        images = torch.autograd.grad(flat, parameters, vector, retain_graph=True, materialize_grads=True)
        return torch.cat([image.reshape(-1) for image in images])

    return product

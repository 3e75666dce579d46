r"""The precision of a Run: in which floating-point numbers its iterates are kept, and how far rounding can move two of them apart.

Trainers record it; theorems on the last iterate hide these errors in the noise. u is the unit roundoff, N a bound on the parameters' norm,
k the roundings a step, $\lambda_t$ the step size, G the error of a mean gradient.
"""

from typing import Any, Literal

from pydantic import Field

from lethe.documents.specification import Specification
from lethe.run.schedules.shapes import Array

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
"""The largest relative error of one rounding to the nearest number of a type."""


class Precision(Specification):
    r"""How the iterates of a run are computed, whose noise is added before anything is rounded at the size of the parameters.

    Rounding a vector of norm N moves it by at most $uN$, u the unit roundoff, so one rounding brings two iterates at most $2uN$ further
    apart: at most $\sqrt d$ units in the last place of the largest parameter. A gradient that is off by G moves each by $\lambda_tG$.

    Args:
        dtype: "float64" or "float32", of the stored parameters.
        parameter_norm: N > 0, a bound on the Euclidean norm of all trained parameters together, in any step.
        gradient_error: $G \ge 0$, a bound on the distance of a computed mean gradient from the exact one, in loss per parameter unit.
        roundings: $k_0 \ge 1$, how often a step rounds at that size, its regularisers aside: once, where the update does.
    Raises:
        InputError: a field is unknown, missing or out of range.
    """

    dtype: Literal["float64", "float32"]
    parameter_norm: float = Field(gt=0)
    gradient_error: float = Field(default=0.0, ge=0)
    roundings: float = Field(default=1.0, ge=1)

    @property
    def rounding(self) -> float:
        """2uN, in parameter units: how far one rounding can move two iterates apart."""
        return 2.0 * UNIT_ROUNDOFF[self.dtype] * self.parameter_norm

    def errors(self, step_sizes: Array, regularisers: float) -> Array:
        r"""$2kuN + 2\lambda_tG$: how far rounding can move two iterates apart in each step, shape (T,), rounded up.

        Args:
            step_sizes: $\lambda_t$, shape (T,).
            regularisers: $k - k_0$, the roundings of all regularisers together.
        """
        return ((self.roundings + regularisers) * self.rounding + 2.0 * self.gradient_error * step_sizes) * (1.0 + 2.0**-50)

    def to_document(self) -> dict[str, Any]:
        """The fields as plain data."""
        return {name: getattr(self, name) for name in type(self).model_fields}


def parse_precision(value: Any) -> Any:
    """A Precision from a mapping of its fields; anything else unchanged, for the Run to judge."""
    return Precision(**{str(name): field for name, field in value.items()}) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]

"""Input checks of the shift engine, made once at its public functions."""

from __future__ import annotations

import operator
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import InputError
from lethe.theorems.shift.scaled import Floats

_UNITS = {
    "lipschitz": "the Lipschitz constant of each step",
    "sensitivity": "how far each step moves the iterate when the record changes",
    "noise_std": "the noise of each step, in parameter units",
    "diameter": "the largest possible distance between the two runs after each step",
}


class Path(NamedTuple):
    """Checked arrays of one length T, one entry a step."""

    lipschitz: Floats
    sensitivity: Floats
    noise_std: Floats

    @property
    def steps(self) -> int:
        """T."""
        return self.lipschitz.size


def checked_path(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike) -> Path:
    """The three sequences as arrays of one length T >= 1.

    Args:
        lipschitz: the Lipschitz constant of each step, >= 0, shape (T,).
        sensitivity: how far each step moves the iterate when the record changes, >= 0, shape (T,), parameter units.
        noise_std: of each step, >= 0, shape (T,), parameter units.
    Raises:
        InputError: sequences of different lengths, or a number that is negative or not finite.
    """
    path = Path(_sequence("lipschitz", lipschitz), _sequence("sensitivity", sensitivity), _sequence("noise_std", noise_std))
    lengths = {name: len(values) for name, values in path._asdict().items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            "lipschitz, sensitivity and noise_std have lengths "
            + ", ".join(str(length) for length in lengths.values())
            + "; they need one length, one entry a step.",
            source="the three sequences that describe a run, step by step",
            remedy="repeat a constant with numpy.full(steps, value).",
        )
    return path


def checked_diameter(diameter: ArrayLike | None, steps: int) -> Floats | None:
    """None, or an array of T numbers >= 0 (inf where there is no bound) from a number or an array; all inf is None."""
    if diameter is None:
        return None
    values = _numbers("diameter", diameter)
    if values.ndim == 0:
        values = np.full(steps, float(values))
    if values.shape != (steps,):
        raise _refusal("diameter", f"has shape {values.shape}", f"a number, or one entry for each of the {steps} steps")
    if not bool(np.all(values >= 0.0)):
        raise _refusal("diameter", f"contains {_first_bad(values, values >= 0.0)}", "numbers >= 0; inf where there is no bound")
    return values if bool(np.isfinite(values).any()) else None


def checked_batches(batches_per_pass: SupportsIndex) -> int:
    """An integer >= 1, or InputError."""
    try:
        number = operator.index(batches_per_pass)
    except TypeError:
        number = 0
    if number < 1 or isinstance(batches_per_pass, bool):
        raise InputError(
            f"batches_per_pass = {batches_per_pass!r}; it needs an integer >= 1.",
            source="the number of disjoint batches that make one pass over the records",
            remedy="pass floor(records / batch size).",
        )
    return number


def _sequence(name: str, given: ArrayLike) -> Floats:
    values = _numbers(name, given)
    if values.ndim != 1 or values.size == 0:
        got = "is a single number" if values.ndim == 0 else f"has shape {values.shape}"
        raise _refusal(name, got, "a sequence of T >= 1 numbers, one a step", remedy="repeat a constant with numpy.full(steps, value).")
    good = np.isfinite(values) & (values >= 0.0)
    if not bool(good.all()):
        raise _refusal(name, f"contains {_first_bad(values, good)}", "finite numbers >= 0")
    return values


def _numbers(name: str, given: ArrayLike) -> Floats:
    try:
        raw = np.asarray(given)
        if raw.dtype.kind not in "fiu":
            raise TypeError
        return raw.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(name, f"is {type(given).__name__} that holds no real numbers", "real numbers") from None


def _first_bad(values: Floats, good: np.ndarray) -> str:
    step = int(np.argmin(good))
    return f"{values[step]:g} at step {step + 1}"


def _refusal(name: str, got: str, needed: str, remedy: str = "check the run that these numbers were computed from.") -> InputError:
    return InputError(f"{name} {got}; it needs {needed}.", source=f"{name}: {_UNITS[name]}", remedy=remedy)

"""Guarantees read back from their JSON form: the one place that knows every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

from lethe.calculus.any_guarantee.composition import Composition
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.base import Guarantee, stored_fields
from lethe.calculus.domains import outside
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.errors import InputError

_CLASSES: tuple[type[Guarantee], ...] = (
    *(GDP, ZCDP, RDPCurve, ApproxDP, NotPrivate, GDPMixture, Tightest, WithSlack),
    *(SampledGaussian, WindowedGaussian, BallsInBinsGaussian, PerturbedMinimiser, Composition),
)
_KINDS = {each.kind: each for each in _CLASSES}


def guarantee_from_dict(data: Mapping[str, object]) -> Guarantee:
    """Rebuild the guarantee that `to_dict` wrote.

    Args:
        data: a mapping with a known `kind` and exactly that kind's fields.
    Returns:
        A guarantee equal to the one written, so with the same numbers bit for bit.
    Raises:
        InputError: the kind is unknown, a field is missing or unknown, or a value is outside its range.
    """
    if not isinstance(data, Mapping) or data.get("kind") not in _KINDS:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = data.get("kind") if isinstance(data, Mapping) else data  # pyright: ignore[reportUnnecessaryIsInstance]
        raise outside("kind", got, "one of " + ", ".join(_KINDS))
    kind = _KINDS[str(data["kind"])]
    given, wanted = set(data) - {"kind"}, set(stored_fields(kind))
    if given != wanted:
        raise InputError(
            f"a guarantee of kind {kind.kind} came with the fields {sorted(given)}; it needs {sorted(wanted)}.",
            source="the dictionary of a guarantee",
            remedy="give back what to_dict wrote",
        )
    return cast("Callable[..., Guarantee]", kind)(**{name: _decode(data[name]) for name in wanted})


def _decode(value: object) -> object:
    if isinstance(value, Mapping):
        return guarantee_from_dict(cast("Mapping[str, object]", value))
    if isinstance(value, list | tuple):
        return tuple(_decode(entry) for entry in cast("list[object]", value))
    return math.inf if value == "inf" else value

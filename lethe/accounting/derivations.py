"""The rules that compute a statement's guarantee again, from the numbers of its mechanism.

`recheck` calls `computed` for a statement in a file, so that its epsilon follows from numbers and is not merely read. There is one rule for
each kind of mechanism.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from lethe.accounting.certify import certify
from lethe.accounting.heavy_tailed import phases_guarantee
from lethe.calculus.any_guarantee import guarantee_from_dict, joined, require_relation
from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import above, round_up, square_above
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.heavy_tailed.solution import parallel
from lethe.mechanisms.adassp import moments_sensitivity
from lethe.mechanisms.base import gaussian_guarantee, require_swap
from lethe.mechanisms.bounded_range import guarantee_for
from lethe.mechanisms.bounded_sums import sums_sensitivity
from lethe.mechanisms.minimisers.objective_perturbation import objective_guarantee
from lethe.mechanisms.minimisers.output_perturbation import output_sensitivity, solver_tolerance
from lethe.mechanisms.moments import channel_sensitivity, moment_sensitivity
from lethe.mechanisms.quantiles.located_quantiles import histogram_sensitivity
from lethe.mechanisms.quantiles.quantile import rank_sensitivity
from lethe.mechanisms.repetitions import repetitions_from_dict
from lethe.mechanisms.selection import selection_guarantee
from lethe.mechanisms.standardise import scaled_moments_sensitivity
from lethe.run.losses import parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Neighbours, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A guarantee that was computed from numbers, with fresh noise, and by name the releases in it of which something is not shown."""

    guarantee: Guarantee
    stated: tuple[str, ...] = ()  # the number is nothing but written
    assumed: tuple[str, ...] = ()  # in words: numbers it is computed from that are guarantees themselves
    unseen: tuple[str, ...] = ()  # nobody here saw the mechanism run: they were read from a file
    apart: tuple[str, ...] = ()  # the parts are said to be on disjoint records


def computed(stated: Statement) -> Computed:
    """What a statement costs with fresh noise, as its derivation says, or what it says itself if none is known here."""
    derivation = stated.derivation
    if derivation is None or derivation.kind not in (*_GAUSSIAN, *_RULES, *_JOINING):
        return Computed(guarantee=stated.planned, stated=(stated.name,))
    parameters = derivation.parameters
    if derivation.kind in _JOINING:
        return _joined(stated, derivation.kind, derivation.parts, parameters)
    unit = parameters["run"].get("unit", "record") if derivation.kind == "run" and isinstance(parameters.get("run"), dict) else "record"
    if stated.unit != unit and derivation.kind != "no data":
        raise InputError(f"derivation: the numbers of {derivation.kind} are about a {unit}, and {stated.name} about a {stated.unit}.")
    if derivation.parts:
        raise InputError(f"derivation: {derivation.kind} is of one release, and came with {len(derivation.parts)} parts.")
    try:
        guarantee = _once(derivation.kind, derivation.text, stated.neighbours)
    except InputError:
        raise
    except (TypeError, KeyError, AttributeError, ValueError, ArithmeticError) as error:
        raise InputError(f"derivation: {derivation.kind} does not take these numbers: {str(error).splitlines()[0]}.") from error
    # What a file calls checked or enforced was read as declared.
    unseen = () if any(finding.evidence != "declared" for finding in stated.findings) else (stated.name,)
    if derivation.kind == "private selection":
        attempt = guarantee_from_dict(parameters["one_try"])
        return Computed(guarantee=guarantee, assumed=(f"one try of {stated.name}: {attempt.describe()}",), unseen=unseen)
    written = derivation.kind == "phases" and any("whole" in phase or "each" in phase for phase in parameters["phases"])
    return Computed(guarantee=guarantee, stated=(stated.name,) if written else (), unseen=unseen)


def _joined(stated: Statement, kind: str, parts: Sequence[Statement], parameters: dict[str, Any]) -> Computed:
    # Of disjoint parts each is what it is once.
    counts = parameters.pop("counts", [1] * len(parts)) if kind == "composition" else [1] * len(parts)
    if not parts or parameters or not isinstance(counts, list) or len(counts) != len(parts):
        raise InputError(f"derivation: {kind} needs at least one part, a count for each, and nothing else.")
    if any(part.neighbours != stated.neighbours for part in parts):
        raise InputError(f"derivation: the parts of {stated.name} are not all about {stated.neighbours}.")
    if any(part.unit != stated.unit for part in parts):
        raise InputError(f"derivation: the parts of {stated.name} are not all about a {stated.unit}.")
    if any(part.seeded for part in parts) and not stated.seeded:
        raise InputError(f"derivation: a part of {stated.name} is seeded, and so is the whole.")
    computed_parts = [computed(part) for part in parts]
    pairs = [(each.guarantee, require_count("counts", count)) for each, count in zip(computed_parts, counts, strict=True)]
    return Computed(
        guarantee=_JOINING[kind](pairs),
        stated=_each_once(each.stated for each in computed_parts),
        assumed=_each_once(each.assumed for each in computed_parts),
        unseen=_each_once(each.unseen for each in computed_parts),
        apart=_each_once([(stated.name,) if kind == "disjoint parts" else (), *(each.apart for each in computed_parts)]),
    )


def _each_once(listed: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(listed)))


_JOINING: dict[str, Callable[[Sequence[tuple[Guarantee, int]]], Guarantee]] = {
    "composition": joined,
    "disjoint parts": lambda pairs: parallel([guarantee for guarantee, _ in pairs]),
}


def _adassp(neighbours: Neighbours, *, norm: float, target_weight: float, eigenvalue_weight: float) -> float:
    return moments_sensitivity(norm=norm, neighbours=neighbours, target_weight=target_weight, eigenvalue_weight=eigenvalue_weight)


def _mean(neighbours: Neighbours, *, norm: float) -> float:
    return require_swap(neighbours) * norm


def _eigenvalue(neighbours: Neighbours, *, norm: float, records: int) -> float:
    require_swap(neighbours)
    # A square or a quotient that underflows is not 0.
    return float(above(square_above(require_positive("norm", norm)) / records, 1e-15))


def _output(neighbours: Neighbours, *, loss: dict[str, Any], records: int, regularisation: float) -> float:
    bound = _linear(loss).row_gradient_bound
    public: dict[str, Any] = {"records": records, "regularisation": regularisation, "neighbours": neighbours}
    return output_sensitivity(gradient_bound=bound, tolerance=solver_tolerance(bound, records), **public)


def _search(neighbours: Neighbours, *, quantile: float) -> float:
    """Eight noisy comparisons of a rank, which older statements name."""
    return round_up(rank_sensitivity(quantile, neighbours) * math.sqrt(8.0), 4e-16)


_GAUSSIAN: dict[str, Callable[..., float]] = {
    "adassp": _adassp,
    "bounded sums": sums_sensitivity,
    "second moments": moment_sensitivity,
    "channel moments": channel_sensitivity,
    "histograms": histogram_sensitivity,
    "mean of rows": _mean,
    "means and scales": scaled_moments_sensitivity,
    "largest eigenvalue": _eigenvalue,
    "output perturbation": _output,
    "quantile by noisy search": _search,
}
"""Of what is released with Gaussian noise: how far a record moves it."""


def _nothing(neighbours: Neighbours) -> Guarantee:
    del neighbours
    return GDP(0.0)


def _objective(neighbours: Neighbours, *, loss: dict[str, Any], **numbers: Any) -> Guarantee:
    return objective_guarantee(_linear(loss), neighbours=neighbours, **numbers)


def _linear(content: dict[str, Any]) -> LinearLoss:
    loss = parse_loss(content)
    if not isinstance(loss, LinearLoss):
        raise InputError(f"loss: got {loss.kind}; a minimiser is of a linear model's.")
    return loss


def _exponential(neighbours: Neighbours, *, range: float, target: dict[str, Any]) -> Guarantee:
    require_swap(neighbours)
    return guarantee_for(range, guarantee_from_dict(target))


def _selection(neighbours: Neighbours, *, one_try: dict[str, Any], repetitions: dict[str, Any], delta: float | None) -> Guarantee:
    base = guarantee_from_dict(one_try)
    require_relation(base, neighbours)
    return selection_guarantee(base, repetitions_from_dict(repetitions), delta=delta)


def _run(neighbours: Neighbours, *, run: dict[str, Any], delta: float) -> Guarantee:
    planned = Run.from_document(run)
    if planned.neighbours != neighbours or planned.seeded:
        raise InputError(f"derivation: its run is about {planned.neighbours}{', and seeded' if planned.seeded else ''}.")
    return certify(planned, delta, allow_large_delta=True).guarantee


def _phases(neighbours: Neighbours, *, phases: list[dict[str, Any]]) -> Guarantee:
    require_swap(neighbours)
    return phases_guarantee(phases)


_RULES: dict[str, Callable[..., Guarantee]] = {
    "no data": _nothing,
    "objective perturbation": _objective,
    "quantile by the exponential mechanism": _exponential,
    "private selection": _selection,
    "run": _run,
    "phases": _phases,
}


# A total asks for the same guarantee at several deltas, and composing runs takes seconds.
@lru_cache(maxsize=64)
def _once(kind: str, text: str, neighbours: Neighbours) -> Guarantee:
    numbers: dict[str, Any] = json.loads(text)
    if kind in _RULES:
        return _RULES[kind](neighbours, **numbers)
    noise = numbers.pop("noise_std")
    for name in ("columns", "records"):
        if name in numbers:
            require_count(name, numbers[name])
    return gaussian_guarantee(_GAUSSIAN[kind](neighbours=neighbours, **numbers), noise)

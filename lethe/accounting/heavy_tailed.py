"""Certificates of heavy-tailed solvers: composition of their phases, or a last-iterate theorem, whichever is smaller; phases as numbers.

The heavy-tailed solvers return a `Solution` of several phases; its user calls `certify_solution`. `derivations` reads phases back from a
file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lethe.accounting.certify import certify
from lethe.calculus.any_guarantee import guarantee_from_dict
from lethe.calculus.domains import require_count, require_nonnegative
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import delta_for, large_delta_note
from lethe.certificates.certificate import Certificate
from lethe.certificates.derivation import Derivation, derivation
from lethe.certificates.findings import not_fresh
from lethe.errors import InputError
from lethe.heavy_tailed.localisation.sampled import drawn_phase, draws_of
from lethe.heavy_tailed.solution import Phase, Release, Solution, composed, disjoint, gaussian_release
from lethe.run.losses import Unknown
from lethe.run.losses.base import Loss

_ROUNDING = 1e-6  # a theorem that says less of what may be seen has to be better by more than its own rounding


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SolutionCertificate:
    r"""A proved $(\epsilon, \delta)$ for a solution, the smaller of two: replace one record, n public."""

    epsilon: float
    delta: float
    basis: str  # "phases", which covers all iterates, or the theorem about the last one
    release: Literal["last", "all"]  # what may be seen
    phases: Guarantee  # of the solution's phases
    certificate: Certificate | None  # of the last iterate; None where there is no recursion
    beside: float  # what the phases before the recursion cost at delta, on records of their own; 0 without any
    records: int
    with_fresh_noise: SolutionCertificate | None = None  # of a seeded solution, whose epsilon is infinite, had its noise been drawn fresh

    def __repr__(self) -> str:
        return f"SolutionCertificate(({self.epsilon:.6g}, {self.delta:g})-DP, by {self.basis}, release {self.release})"

    def __str__(self) -> str:
        lines = self.explain().splitlines()
        if self.certificate is not None and self.basis != "phases" and self.with_fresh_noise is None:
            lines = [lines[0], *str(self.certificate).splitlines()]
        return "\n".join(lines)

    def explain(self) -> str:
        """Which of the two holds, the other one, and the certificate's own explanation where it is used."""
        if self.with_fresh_noise is not None:
            why = not_fresh(f"with fresh noise: {self.with_fresh_noise.explain()}").detail
            return f"({self.epsilon:.6g}, {self.delta:g})-DP. NOT PRIVATE: {why}"
        used = f"by phases: epsilon = {self.phases.epsilon(self.delta):.6g}, all iterates released"
        alternative, rest = "not one noisy recursion of many passes", large_delta_note(self.delta, self.records)
        if self.certificate is not None:
            alternative = f"by {self.certificate.theorem}: epsilon = {max(self.certificate.epsilon, self.beside):.6g}, last iterate only"
            if self.basis != "phases":
                used, alternative, rest = alternative, used, self.certificate.explain()
        line = f"({self.epsilon:.6g}, {self.delta:g})-DP, replace one record, {used}; {alternative}"
        return line if rest is None else f"{line}\n{rest}"


def certify_solution(solution: Solution, delta: float, *, loss: Loss | None = None, allow_large_delta: bool = False) -> SolutionCertificate:
    r"""The smaller of what a solution's phases cost and what the theorems about last iterates prove of its run.

    A solution of `multi_pass` with `ClippedMean` has a run. Where each record's loss is convex and smooth enough for the steps, the noise
    added after a record was touched hides it as well (docs/theory.md): say so by `loss`, of single records before clipping. It is declared
    and not checked, and it is about every record there could be: least squares with unbounded features is smooth for no constant.
    The solvers that touch every record once gain nothing from it: a record of the last batch has one noise on top of it, and what they cost
    already is the cost of that.

    Formal guarantee: if the basis is a theorem, nothing but the last iterate is released of the recursion, and what the phases before it
    released from records of their own; else everything that was computed.

    Args:
        solution: of any solver. A seeded one has an infinite epsilon, whatever the theorems say of fresh noise.
        delta: in (0, 1), and below 1/records.
        loss: what is known of each record's loss; None: nothing.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: as `lethe.certify`.
    """
    if not isinstance(solution, Solution):  # pyright: ignore[reportUnnecessaryIsInstance]
        what = f"solution = {type(solution).__name__}; it needs a Solution of lethe.heavy_tailed."
        raise InputError(what, source="the argument solution")
    if solution.seeded:
        fresh = certify_solution(solution.fresh, delta, loss=loss, allow_large_delta=allow_large_delta)
        run = None if fresh.certificate is None else fresh.certificate.run.replace(seeded=True)
        certificate = None if run is None else certify(run, fresh.delta, allow_large_delta=True)
        fields: dict[str, Any] = {"epsilon": math.inf, "beside": math.inf, "phases": solution.guarantee, "certificate": certificate}
        return replace(fresh, with_fresh_noise=fresh, **fields)
    loss_class = Unknown() if loss is None else loss
    if not isinstance(loss_class, Loss):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"loss = {loss!r}; it needs a loss of lethe.run.losses.", source="the argument loss")
    records = max(phase.stop for phase in solution.phases)
    target = delta_for(records, delta, allow_large_delta=allow_large_delta)
    by_phases = solution.guarantee.epsilon(target)
    certificate, aside = None, 0.0
    if solution.run is not None:
        disjoint(list(solution.phases))
        aside = max((phase.guarantee.epsilon(target) for phase in solution.phases[:-1]), default=0.0)
        certificate = certify(solution.run.replace(loss=loss_class), target, allow_large_delta=True)  # looked at above
    basis, release, epsilon = "phases", "all", by_phases
    if certificate is not None and (last := max(certificate.epsilon, aside)) < by_phases * (1.0 - _ROUNDING):
        basis, release, epsilon = certificate.theorem, certificate.run.release, last
    return SolutionCertificate(
        epsilon=epsilon,
        delta=target,
        basis=basis,
        release=release,
        phases=solution.guarantee,
        certificate=certificate,
        beside=aside,
        records=records,
    )


def phases_derivation(phases: Sequence[Phase]) -> Derivation:
    """The numbers of the phases: of Gaussian means sensitivity and noise, of secret batches how they are drawn, else what is stated."""
    listed: list[dict[str, Any]] = []
    for phase, release in [(phase, phase.release) for phase in phases]:
        if phase.whole is not None:
            cost: dict[str, Any] = draws_of(phase) or {"whole": phase.whole.to_dict()}
        elif release.sensitivity is None:
            cost = {"each": release.guarantee.to_dict()}
        else:
            cost = {"sensitivity": float(release.sensitivity), "noise_std": float(release.noise_std)}
        listed.append({"first": phase.first, "stop": phase.stop, "touches": phase.touches, **cost})
    return derivation("phases", phases=listed)


def phases_guarantee(phases: Sequence[dict[str, Any]]) -> Guarantee:
    """The guarantee of phases from `phases_derivation`."""
    return composed([(drawn_phase if "sampling_probability" in numbers else _phase)(**numbers) for numbers in phases])


def _phase(
    *, first: int, stop: int, touches: int, sensitivity: Any = None, noise_std: Any = None, each: Any = None, whole: Any = None
) -> Phase:
    stated = None if whole is None else guarantee_from_dict(whole)
    if stated is not None or each is not None:
        release = Release(guarantee=stated or guarantee_from_dict(each), sensitivity=None, noise_std=0.0)
    else:
        moved = require_nonnegative("sensitivity", sensitivity, allow_infinity=False)
        release = gaussian_release(moved, require_nonnegative("noise_std", noise_std, allow_infinity=False))
    require_count("touches", touches)
    require_count("stop", stop, low=require_count("first", first, low=0) + 1)
    # How many means there were, and of how many records, is in the sensitivity.
    return Phase(first=first, stop=stop, batch_size=1, steps=touches, touches=touches, release=release, clip_norm=None, whole=stated)

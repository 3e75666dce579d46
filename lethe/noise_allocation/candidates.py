"""Allocation: the shape of noise that `allocate` chose, the candidates beside it, and what a person reads of each.

`allocate` makes it and returns it to the user; `report.schedule_plot` draws it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.accounting.certify import Cumulative
from lethe.calculus.large_delta import is_large
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.documents.shortened import few_lines
from lethe.noise_allocation.noise_shapes import Shape
from lethe.run.batches import Cyclic, Poisson
from lethe.run.noise.strategies import growths
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules import Influence
from lethe.run.schedules.shapes import Array

UNITS = "Noise: the standard deviation that all noise together gives a coordinate of the last model, in parameter units."

WORDS: Mapping[str, str] = {
    "uniform": "the same at every step",
    "pass_ends": "at the end of each pass, none between",
    "exponential": "changes by one factor a step",
    "influence": "less where it matters more",
    "joint": "the best if only the last model is shown",
    "correlated": "later steps take part of it back",
    "poisson": "the same at every step, batches drawn by chance",
    "cyclic": "correlated, batches in a fixed order",
}
"""What each way of placing noise is, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Candidate:
    r"""One way of placing noise, scaled to the target.

    Args:
        shape: its name.
        run: the run with this noise; None if it cannot be had.
        certificate: of that run.
        harm: $\sum_t q_t\tau_t^2$ (`noise_shapes.harm_of`); inf if it cannot be had.
        why: the reason against it, or empty.
        needs: what the run would have to change for it, or empty; then it is shown, and never chosen.
    """

    shape: str
    run: Run | None
    certificate: Certificate | None
    harm: float
    why: str = ""
    needs: str = ""

    @property
    def noise(self) -> float:
        r"""$\sqrt{\mathrm{harm}}$: standard deviation in parameter units, of a coordinate of the last model.

        Where an influence says that noise fades: of noise at the most influential step that does the same harm.
        """
        return math.sqrt(self.harm)

    @property
    def words(self) -> str:
        """What it is, and what it needs, in a few words."""
        shape_words = WORDS.get(self.shape, self.shape)
        return f"{shape_words}; needs {self.needs}" if self.needs else shape_words

    def __repr__(self) -> str:
        certificate = self.certificate
        large = ", delta >= 1/records" if certificate is not None and certificate.large_delta else ""
        result = self.why if certificate is None else f"harm {self.harm:.4g}, epsilon {certificate.epsilon:.6g}{large}"
        return f"Candidate({self.shape}: {result})"


def other_designs(run: Run) -> list[tuple[str, Run, Shape, str]]:
    """The run in batches that it does not have, to say what they would have given: name, run, shape of its noise, and what it needs.

    Of a run whose batches are drawn afresh: cyclic ones, with correlated noise; of one in passes: Poisson batches, with uniform noise.
    """
    batches = run.batches
    size = batches.nominal_size(run.records)
    if batches.whole(run.records) or batches.cap is not None or run.noise_at != "every_step" or run.pass_weights is not None:
        return []
    match batches.participation:
        case Participation.EVERY_STEP:
            return []
        case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT:
            return [("poisson", run.replace(batches=Poisson(size=size)), "uniform", "poisson batches")]
        case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            if run.neighbours not in Cyclic.neighbours:
                return []
            return [("cyclic", run.replace(batches=Cyclic(size=size)), "correlated", "cyclic batches")]
    raise unknown_participation(batches.design, batches.participation)


def step_noise(run: Run) -> Array:
    """The noise multiplier that each noisy step has: of correlated noise, of what reaches the step, shape (noisy steps,)."""
    multipliers = run.uncorrelated.noise_multipliers
    grown = multipliers if run.noise is None else multipliers * growths(run.noise, run.total_steps)
    return grown[run.noisy_steps]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Allocation:
    """The noise that was chosen, and what else was tried.

    Args:
        chosen: the candidate of least harm that the run allows, the simplest of those within a thousandth.
        candidates: all that were tried, simplest first; then those that need other batches.
        influence: what harm was measured with.
        notes: what a person should know, a sentence each.
    """

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    influence: Influence
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        other_shapes = ", ".join(candidate.shape for candidate in self.candidates if candidate is not self.chosen)
        return f"Allocation({self.chosen!r}, run {self.run.run_id}{f', besides {other_shapes}' if other_shapes else ''})"

    def __str__(self) -> str:
        """The certified claim of the chosen shape, and what the others would do."""
        tried = [f"{'->' if candidate is self.chosen else '  '} {candidate!r}" for candidate in self.candidates]
        return few_lines([repr(self.certificate), *tried, *self.notes], whole="explain()")

    def explain(self) -> str:
        """The candidates, the chosen one, the notes and the certificate, as text."""
        tried = [
            f"{'->' if candidate is self.chosen else '  '} {candidate.shape:<12} "
            + (
                candidate.why
                if candidate.certificate is None
                else f"noise {candidate.noise:<11.4g} harm {self._relative(candidate):<8.4g} {candidate.words}"
            )
            for candidate in self.candidates
        ]
        head = [f"{UNITS}", f"Harm is that noise squared, beside the chosen one's; {self.influence.describe()}."]
        return "\n".join([*head, *tried, *self.notes, "", self.certificate.explain()])

    def _relative(self, candidate: Candidate) -> float:
        return candidate.harm / self.chosen.harm if self.chosen.harm > 0 else 1.0

    @property
    def run(self) -> Run:
        """The planned run."""
        assert self.chosen.run is not None
        return self.chosen.run

    @property
    def certificate(self) -> Certificate:
        """The certificate of the planned run."""
        assert self.chosen.certificate is not None
        return self.chosen.certificate

    def to_dict(self) -> dict[str, Any]:
        """What was tried, as plain data; harm relative to the chosen one's."""
        return {
            "schedule": self.chosen.shape,
            "influence": self.influence.describe(),
            "candidates": [
                {
                    "schedule": candidate.shape,
                    "noise": None if candidate.run is None else candidate.noise,
                    "harm": None if candidate.run is None else self._relative(candidate),
                    "epsilon": None if candidate.certificate is None else candidate.certificate.epsilon,
                    "theorem": None if candidate.certificate is None else candidate.certificate.theorem,
                    "words": candidate.words,
                    "needs": candidate.needs,
                    "why": candidate.why,
                }
                for candidate in self.candidates
            ],
            "notes": list(self.notes),
        }


def plot_content(run: Run, cumulative: Cumulative, allocation: Allocation | None = None) -> dict[str, Any]:
    """What `report.schedule_plot` draws: the noise of a planned run, how its privacy loss grows, and an allocation's other candidates."""
    shapes = (
        {"planned": run}
        if allocation is None
        else {candidate.shape: candidate.run for candidate in allocation.candidates if candidate.run is not None and not candidate.needs}
    )
    large = " >= 1/records" if is_large(cumulative.delta, run.records) else ""
    last = run.release == "last"
    epsilon, what = (cumulative.last_iterate, "the last iterate") if last else (cumulative.every_iterate, "all iterates")
    return {
        "title": f"run {run.run_id}: epsilon = {shown(epsilon[-1])} for {what} at delta = {cumulative.delta:g}{large}",
        "schedules": [
            {
                "name": name,
                "chosen": shape_run is run,
                "steps": (shape_run.noisy_steps + 1).tolist(),
                "noise_multipliers": step_noise(shape_run).tolist(),
            }
            for name, shape_run in shapes.items()
        ],
        "cumulative": cumulative.to_dict(),
    }

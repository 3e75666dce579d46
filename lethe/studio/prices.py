"""The price of alternatives: the same question asked of runs that differ in one choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError, LetheError
from lethe.run.batches import Poisson, Shuffled, ShuffledOnce
from lethe.run.run import Run
from lethe.studio.answers import certified
from lethe.studio.state import State

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativePrice:
    """What one alternative costs.

    Args:
        label: what is changed.
        number: the epsilon, or the noise that is needed, rounded up for display; empty where there is none.
        ratio: the number over that of the run itself; None where there is none.
        why: why there is no number; empty where there is one.
    """

    label: str
    number: str
    ratio: float | None
    why: str


def _stretched(run: Run, factor: float) -> Run:
    length = "steps" if run.passes is None else "passes"
    count = getattr(run, length) * factor
    if count != int(count):
        raise InputError(f"{length}: got {getattr(run, length)}, half of which is no whole number.")
    return run.replace(**{length: int(count)})


ALTERNATIVES: Mapping[str, Callable[[Run], Run]] = {
    "batches shuffled once": lambda run: run.replace(batches=ShuffledOnce(size=run.batch_size)),
    "shuffled anew every pass": lambda run: run.replace(batches=Shuffled(size=run.batch_size)),
    "Poisson batches": lambda run: run.replace(batches=Poisson(size=run.batch_size)),
    "noise at pass ends only": lambda run: run.replace(noise_at="pass_ends"),
    "noise at every step": lambda run: run.replace(noise_at="every_step"),
    "twice as long": lambda run: _stretched(run, 2),
    "half as long": lambda run: _stretched(run, 0.5),
    "only the last iterate seen": lambda run: run.replace(release="last"),
    "every iterate may be seen": lambda run: run.replace(release="all"),
}
"""What is changed -> how."""


@lru_cache(maxsize=_REMEMBERED)
def price(query: str, label: str) -> AlternativePrice | None:
    """The price of one of `ALTERNATIVES` to the state with this query; None where the run has it already.

    Raises:
        LetheError: the state itself has no answer.
    """
    question = State.from_query(query).question()
    own = _number(query)
    try:
        changed = ALTERNATIVES[label](question.run)
        if changed == question.run:
            return None
        run, certificate = certified(question._replace(run=changed))
    except LetheError as error:
        return AlternativePrice(label=label, number="", ratio=None, why=error.what)
    number = float(run.noise_multipliers.max()) if question.find_noise else certificate.epsilon
    ratio = number / own if 0.0 < own < float("inf") and number < float("inf") else None
    return AlternativePrice(label=label, number=shown(number), ratio=ratio, why="")


@lru_cache(maxsize=_REMEMBERED)
def _number(query: str) -> float:
    """The run's own epsilon or noise."""
    question = State.from_query(query).question()
    run, certificate = certified(question)
    return float(run.noise_multipliers.max()) if question.find_noise else certificate.epsilon

"""What the planner shows of a question: numbers, reasons, texts; no number where there is a reason against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan_with_certificate
from lethe.calculus.large_delta import delta_for, is_large, unusual_delta_warning, usual_delta
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.certificate import Certificate
from lethe.documents.strict import to_yaml
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.run import Run
from lethe.studio.exports import python_of
from lethe.studio.state import Question, State
from lethe.utility import excess_risk_bound

_REMEMBERED = 128
_MOST_POINTS = 400  # of the noise schedule; nobody sees more


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoremRow:
    """What one theorem says of the run that is shown.

    Args:
        theorem: its name.
        epsilon: rounded up for display; empty where the theorem does not apply.
        used: whether the certificate rests on it.
        why: why it is not used, or the theorem's guarantee where it is.
    """

    theorem: str
    epsilon: str
    used: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A prediction, or why there is none.

    Args:
        value: a bound of the expected excess risk, rounded up for display; empty where there is none.
        words: what it rests on, or why there is none.
    """

    value: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAnswer:
    """What is shown of one state.

    Args:
        epsilon: certified, at `delta`; inf says that nothing is proved.
        noise: the largest noise multiplier of the run.
        found_noise: whether the noise was looked for.
        delta, theorem, release, neighbours, unit: of the certificate.
        steps, noisy_steps: of the run.
        notes: what must stand beside the number.
        theorems: Lethe's own, the used one first.
        schedule: (step, noise multiplier) of noisy steps, thinned out.
        risk: predicted.
        explanation: the certificate in words.
        yaml, python: the run.
    """

    epsilon: float
    noise: float
    found_noise: bool
    delta: float
    theorem: str
    release: str
    neighbours: str
    unit: str
    steps: int
    noisy_steps: int
    notes: tuple[str, ...]
    theorems: tuple[TheoremRow, ...]
    schedule: tuple[tuple[int, float], ...]
    risk: Risk
    explanation: str
    yaml: str
    python: str


@lru_cache(maxsize=_REMEMBERED)
def answer(query: str) -> StateAnswer:
    """What is shown of the state with this query; what is asked again is remembered.

    Raises:
        LetheError: the state makes no run, or nothing can be certified or planned of it.
    """
    question = State.from_query(query).question()
    run, certificate = certified(question)
    noisy = run.noisy_steps
    return StateAnswer(
        epsilon=certificate.epsilon,
        noise=float(run.noise_multipliers.max()),
        found_noise=question.find_noise,
        delta=certificate.delta,
        theorem=certificate.theorem,
        release=run.release,
        neighbours=run.neighbours,
        unit=run.unit,
        steps=run.total_steps,
        noisy_steps=int(np.count_nonzero(run.noise_multipliers)),
        notes=tuple(_notes(run, certificate)),
        theorems=tuple(_rows(certificate)),
        schedule=_thinned(np.arange(1, run.total_steps + 1)[noisy], run.noise_multipliers[noisy]),
        risk=_risk(run, question),
        explanation=certificate.explain(),
        yaml=to_yaml(run.to_document()),
        python=python_of(run, certificate.delta),
    )


def certified(question: Question) -> tuple[Run, Certificate]:
    """The run that is asked for, and its certificate: as `lethe.certify` and `lethe.plan` give them.

    Raises:
        LetheError: as they do.
    """
    run, delta = question.run, question.delta
    # What would be warned of stands in the notes: warnings of threads that work at the same time cannot be told apart.
    quiet = _may_be_asked_quietly(run.records, delta)
    if question.find_noise:
        return plan_with_certificate(run, question.epsilon, delta, allow_large_delta=quiet)
    return run, certify(run, delta, allow_large_delta=quiet)


def _may_be_asked_quietly(records: int, delta: object) -> bool:
    """Whether `delta` needs a warning at most.

    Raises:
        InputError: it is 1/records or more.
    """
    if not isinstance(delta, float) or not 0.0 < delta < 1.0:
        return False
    if is_large(delta, records):
        try:
            delta_for(records, delta, allow_large_delta=False)
        except InputError as error:  # which tells of an argument that the page does not have
            remedy = f"give {shown_down(usual_delta(records), 2)} or less; `lethe certify --allow-large-delta` takes a larger one."
            raise InputError(error.what, source=error.source, remedy=remedy) from None
    return True


def _notes(run: Run, certificate: Certificate) -> Iterable[str]:
    if certificate.not_private:
        yield certificate.not_private
    if (warning := unusual_delta_warning(certificate.delta, run.records)) is not None:
        yield warning
    if run.release == "last":
        yield "Void once anything but the final parameters leaves the training: an earlier checkpoint, an average, the optimiser's state."
    if run.batches.secret:
        yield f"Void unless this stays secret: {run.batches.secret}."


def _rows(certificate: Certificate) -> Iterable[TheoremRow]:
    why = certificate.guarantee.describe()
    yield TheoremRow(theorem=certificate.theorem, epsilon=shown(certificate.epsilon), used=True, why=f"used: {why}")
    for other in certificate.others:
        epsilon = "" if other.epsilon is None or other.status == "refused" else shown(other.epsilon)
        yield TheoremRow(theorem=other.theorem, epsilon=epsilon, used=False, why=other.why)


def _thinned(steps: np.ndarray, levels: np.ndarray) -> tuple[tuple[int, float], ...]:
    """At most `_MOST_POINTS` points, with the least and the largest level of each part that is left out."""
    if len(steps) <= _MOST_POINTS:
        return tuple(zip(steps.tolist(), levels.tolist(), strict=True))
    edges = np.linspace(0, len(steps), _MOST_POINTS // 2 + 1).astype(int)
    kept: set[int] = {0, len(steps) - 1}
    for start, end in pairwise(edges):
        kept |= {int(start + levels[start:end].argmin()), int(start + levels[start:end].argmax())}
    chosen = sorted(kept)
    return tuple(zip(steps[chosen].tolist(), levels[chosen].tolist(), strict=True))


def _risk(run: Run, question: Question) -> Risk:
    if question.dimension is None or question.initial_gap is None:
        return Risk(value="", words="No prediction: it needs the number of parameters and the initial gap, from public knowledge.")
    try:
        bound = excess_risk_bound(run, dimension=question.dimension, initial_gap=question.initial_gap)
    except HypothesisError as error:
        return Risk(value="", words=f"No prediction. {error}")
    except LetheError as error:
        return Risk(value="", words=str(error))
    return Risk(value=shown(bound.value), words=bound.explain())

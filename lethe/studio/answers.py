"""What the planner shows of a question: numbers, reasons, texts, prices; no number where there is a reason against it.

app.py calls `answer` and `price` with the `State` of the controls; it plans and certifies as `lethe.plan` and `lethe.certify` do, and
returns plain data that parts.py and picture.py draw.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan_with_certificate
from lethe.calculus.large_delta import delta_for, is_large, unusual_delta_warning, usual_delta
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.certificate import Certificate
from lethe.documents.specification import Specification
from lethe.documents.strict import to_yaml
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run import batches, losses, noise, regularisers, schedules
from lethe.run.batches import Poisson, Shuffled, ShuffledOnce
from lethe.run.run import Run
from lethe.studio.state import Question, State
from lethe.utility import excess_risk_bound

_MOST_POINTS = 400  # of the noise schedule; nobody sees more
_HOMES = {"batches": batches, "regularisers": regularisers, "losses": losses, "schedules": schedules, "noise": noise}


class TheoremRow(NamedTuple):
    """What one theorem says of a run: an epsilon rounded up, or none; whether the certificate rests on it; and why, or why not."""

    theorem: str
    epsilon: str
    used: bool
    why: str


class Risk(NamedTuple):
    """A bound of the expected excess risk, rounded up, and what it rests on; or no value, and why there is none."""

    value: str
    words: str


class StateAnswer(NamedTuple):
    """What is shown of one state: numbers of the run and its certificate (epsilon inf: nothing is proved), and texts.

    `noise` is the largest multiplier, `found_noise` whether it was looked for; `theorems` are Lethe's own, the used one first; `schedule`
    is (step, noise multiplier) of noisy steps, thinned out. The run itself is not kept: of a million steps it would take too much memory.
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


@lru_cache(maxsize=128)
def answer(query: str) -> StateAnswer:
    """What is shown of the state with this query, and remembered; LetheError where it makes no run, or one without a certificate."""
    question = State.from_query(query).question()
    run, certificate = _certified(question)
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
        schedule=thinned(np.arange(1, run.total_steps + 1)[noisy], run.noise_multipliers[noisy]),
        risk=_risk(run, question),
        explanation=certificate.explain(),
        yaml=to_yaml(run.to_document()),
        python=python_of(run, certificate.delta),
    )


def _certified(question: Question) -> tuple[Run, Certificate]:
    """The run that is asked for, and its certificate: as `lethe.certify` and `lethe.plan` give them."""
    run, delta = question.run, question.delta
    # What would be warned of stands in the notes: warnings of threads that work at the same time cannot be told apart.
    quiet = isinstance(delta, float) and 0.0 < delta < 1.0
    if quiet and is_large(delta, run.records):
        try:
            delta_for(run.records, delta, allow_large_delta=False)
        except InputError as error:  # which tells of an argument that the page does not have
            remedy = f"give {shown_down(usual_delta(run.records), 2)} or less; `lethe certify --allow-large-delta` takes a larger one."
            raise InputError(error.what, source=error.source, remedy=remedy) from None
    if question.find_noise:
        return plan_with_certificate(run, question.epsilon, delta, allow_large_delta=quiet)
    return run, certify(run, delta, allow_large_delta=quiet)


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
    yield TheoremRow(certificate.theorem, shown(certificate.epsilon), True, f"used: {certificate.guarantee.describe()}")
    for alternative in certificate.others:
        epsilon = "" if alternative.epsilon is None or alternative.status == "refused" else shown(alternative.epsilon)
        yield TheoremRow(alternative.theorem, epsilon, False, alternative.why)


def thinned(steps: np.ndarray, levels: np.ndarray) -> tuple[tuple[int, float], ...]:
    """At most some 400 points (step, level), with the least and the largest level of each part that is left out; shapes (n,)."""
    chosen = np.arange(len(steps))
    if len(steps) > _MOST_POINTS:
        chosen_steps = {0, len(steps) - 1}
        for start, end in pairwise(np.linspace(0, len(steps), _MOST_POINTS // 2 + 1).astype(int)):
            chosen_steps |= {int(start + levels[start:end].argmin()), int(start + levels[start:end].argmax())}
        chosen = np.array(sorted(chosen_steps))
    return tuple(zip(steps[chosen].tolist(), levels[chosen].tolist(), strict=True))


def _risk(run: Run, question: Question) -> Risk:
    if question.dimension is None or question.initial_gap is None:
        return Risk("", "No prediction: it needs the number of parameters and the initial gap, from public knowledge.")
    try:
        bound = excess_risk_bound(run, dimension=question.dimension, initial_gap=question.initial_gap)
    except HypothesisError as error:
        return Risk("", f"No prediction. {error}")
    except LetheError as error:
        return Risk("", str(error))
    return Risk(shown(bound.value), bound.explain())


def python_of(run: Run, delta: float) -> str:
    """Code that builds `run` and certifies it at `delta`; fields at their defaults are left out."""
    fields = "".join(f"    {name}={_expression(value)},\n" for name, value in _changed(run).items())
    return f"import lethe\n\nrun = lethe.Run(\n{fields})\nprint(lethe.certify(run, delta={delta!r}).explain())\n"


def _changed(part: Specification) -> dict[str, Any]:
    """Its fields that are not at their defaults; those without one are always there."""
    fields = type(part).model_fields
    values = {name: getattr(part, name) for name in fields}
    return {name: value for name, value in values.items() if fields[name].is_required() or value != fields[name].default}


def _expression(value: Any) -> str:
    if isinstance(value, schedules.Explicit):
        return repr(list(value.listed))
    if isinstance(value, tuple):
        return f"({''.join(f'{_expression(entry)}, ' for entry in value)})"
    if not isinstance(value, Specification):
        return repr(value)
    home = next(name for name, namespace in _HOMES.items() if hasattr(namespace, type(value).__name__))
    fields = ", ".join(f"{name}={_expression(entry)}" for name, entry in _changed(value).items())
    return f"lethe.{home}.{type(value).__name__}({fields})"


class AlternativePrice(NamedTuple):
    """What one alternative costs: the epsilon or noise, rounded up, and its ratio to the run's own; or why there is no number."""

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


NOISE_FACTORS = (0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, 4.0)
"""Of the noise of a run: where its epsilon is drawn besides, the nearest first."""


@lru_cache(maxsize=1024)
def epsilon_at(query: str, factor: float) -> tuple[float, float]:
    """(largest noise multiplier, epsilon) of the run of the state with this query, all its noise times `factor`; errors as `answer`."""
    question, level = State.from_query(query).question(), answer(query).noise
    run = question.run
    largest = 1.0 if run.noise_multiplier is None else float(run.noise_multipliers.max())
    scaled, certificate = _certified(question._replace(run=run.with_noise_scaled(factor * level / largest), find_noise=False))
    return float(scaled.noise_multipliers.max()), certificate.epsilon


def state_with(query: str, label: str) -> State:
    """The state with this query, changed to one of `ALTERNATIVES`; its target and its noise stay."""
    state = State.from_query(query)
    changed = State.of_run(ALTERNATIVES[label](state.question().run), state)
    return changed.with_texts(**{name: state.texts[name] for name in ("find", "epsilon", "noise")})


@lru_cache(maxsize=1024)
def price(query: str, label: str) -> AlternativePrice | None:
    """The price of one of `ALTERNATIVES` to the state with this query; None where the run has it already; LetheError as `answer`."""
    question, current = State.from_query(query).question(), answer(query)
    try:
        changed = ALTERNATIVES[label](question.run)
        if changed == question.run:
            return None
        run, certificate = _certified(question._replace(run=changed))
    except LetheError as error:
        return AlternativePrice("", None, error.what)
    number, before = (float(run.noise_multipliers.max()), current.noise) if question.find_noise else (certificate.epsilon, current.epsilon)
    ratio = number / before if 0.0 < before < float("inf") and number < float("inf") else None
    return AlternativePrice(shown(number), ratio, "")

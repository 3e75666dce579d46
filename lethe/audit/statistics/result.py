"""AuditResult: a lower bound, what kind of statement it is, and its assumptions.

lower_bounds.py and one_run.py return it; an `AuditPage` and the report show it. It cannot be made with an estimator that does not support
its kind, so an estimate never reads as a proof.
"""

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from lethe.audit.statistics.counts import GAMES, Guesses, Tally
from lethe.audit.statistics.curves import AuditSetting, Estimator, Level, Neighbours, Threat
from lethe.audit.statistics.rules import Selection
from lethe.calculus.upward_formatting import shown_down
from lethe.documents.specification import StoredSpecification, from_tagged
from lethe.errors import InputError

Kind = Literal["certified", "conditional", "credible", "point_estimate"]
Unit = Literal["run", "step", "canary", "guess"]


class _Evidence(NamedTuple):
    kind: Kind
    unit: tuple[Unit, ...]
    selection: tuple[Selection, ...]


_THRESHOLDS: tuple[Selection, ...] = ("fixed", "split", "ranks", "multi_split")
# What kind of statement each estimator makes, what it may count as one independent trial, and how its test may be chosen. A plug-in counts
# anything, which is why it proves nothing. A credible limit has no level to share between thresholds.
_ESTIMATORS: dict[Estimator, _Evidence] = {
    "clopper_pearson": _Evidence("certified", ("run",), _THRESHOLDS),
    "one_run": _Evidence("certified", ("canary",), ("guesses",)),
    "gaussian": _Evidence("conditional", ("run", "step"), _THRESHOLDS),
    "sampled_gaussian": _Evidence("conditional", ("run", "step"), _THRESHOLDS),
    "one_run_gaussian": _Evidence("conditional", ("canary",), ("guesses",)),
    "bayesian": _Evidence("credible", ("run",), ("fixed", "split")),
    "plug_in": _Evidence("point_estimate", ("run", "step", "canary", "guess"), (*_THRESHOLDS, "guesses", "same_data")),
}
RELATIONS: dict[Neighbours, str] = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}
"""What each neighbouring relation is called."""
_THREATS = {
    "black_box": "sees the final model's answers",
    "black_box_chosen_start": "sees the final model's answers and chose its start",
    "final_model": "sees the final model",
    "white_box": "sees every noisy step",
    "average_case": "sees the final model's answers, on natural records",
}


def infinity_of(value: object) -> object:
    """Infinity for the text "inf", as documents have it; anything else as it is."""
    return math.inf if value == "inf" else value


class AuditResult(StoredSpecification):
    r"""The result of one audit.

    What kind of statement it is follows from how it was computed, and cannot be claimed:

    - certified: with probability at least $1 - \alpha$ the mechanism is NOT $(\epsilon', \delta)$-DP for any $\epsilon' < \epsilon$;
    - conditional: the same, if the trade-off curve is of the named family;
    - credible: a posterior probability, under a prior;
    - point_estimate: a number without an interval, which proves nothing in either direction.

    A value obtained by a weaker adversary holds for every stronger one. A small value proves nothing.

    Args:
        epsilon: $\ge 0$; infinite only for a point estimate.
        delta: $\delta$ it is for.
        level: $\alpha$, the probability of being wrong; None for a point estimate.
        estimator: how it was computed.
        family: the trade-off curves assumed, in words, for a conditional one; else None.
        unit: what counted as one trial.
        selection: how the threshold, or the number of guesses, was chosen.
        rule: the same in words.
        neighbours: which two data sets count as neighbours.
        threat: what the adversary sees.
        counts: what was counted.
        seeds: of the runs and of the splits, for repeating the audit.
        warnings: what a reader must know besides.
        at_best: the largest epsilon that this rule can give at this level with so many trials, of scores that make no error; None: not
            known, or a point estimate. A result well below it says something of the mechanism, a small `at_best` of the audit.
    """

    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=True), BeforeValidator(infinity_of)]
    delta: float = Field(ge=0, lt=1)
    level: Level | None
    estimator: Estimator
    family: Annotated[str, Field(min_length=1)] | None = None
    unit: Unit
    selection: Selection
    rule: str = Field(min_length=1)
    neighbours: Neighbours
    threat: Threat
    counts: Annotated[Tally | Guesses, BeforeValidator(lambda value: from_tagged(value, tag="game", classes=GAMES))]
    seeds: Annotated[tuple[int, ...], Field(strict=False)] = ()
    warnings: Annotated[tuple[str, ...], Field(strict=False)] = ()
    at_best: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        evidence = _ESTIMATORS[self.estimator]
        for name in ("unit", "selection"):
            if getattr(self, name) not in (allowed := getattr(evidence, name)):
                why = f"{self.estimator} proves nothing from it; it needs {' or '.join(allowed)}."
                raise InputError(f"{name} {getattr(self, name)}: {why}", remedy="report it as plug_in")
        if self.estimator != "plug_in" and isinstance(self.counts, Guesses) != self.estimator.startswith("one_run"):
            raise InputError(f"counts: got those of a {self.counts.game} game; {self.estimator} does not come from it.")
        for name, needed in (("level", self.kind != "point_estimate"), ("family", self.kind == "conditional")):
            if (getattr(self, name) is not None) != needed:
                raise InputError(f"{name}: got {getattr(self, name)!r}; a {self.kind} result {'needs one' if needed else 'has none'}.")
        if self.at_best is not None and (self.kind == "point_estimate" or self.at_best < self.epsilon):
            raise InputError(f"at_best: got {self.at_best:g} of a {self.kind} result of {self.epsilon:g}; no audit shows more than it can.")
        if self.epsilon == math.inf and self.kind != "point_estimate":
            raise InputError(f"epsilon: got infinity; a {self.kind} result is finite.")
        if len(set(self.seeds)) != len(self.seeds):
            raise InputError("seeds: one is there twice; two runs with one noise are one run.", remedy="repeat with fresh seeds")
        return self

    @classmethod
    def of(cls, setting: AuditSetting, **fields: Any) -> Self:
        """A result that is stated for what a setting says."""
        stated = {name: getattr(setting, name) for name in ("delta", "level", "neighbours", "threat")}
        return cls(**{**stated, **fields})

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return f"AuditResult({self.describe().splitlines()[0]})"

    @property
    def kind(self) -> Kind:
        """What kind of statement this is."""
        return _ESTIMATORS[self.estimator].kind

    def describe(self) -> str:
        """The result in a few lines, each kind in its own words."""
        number, level = shown_down(self.epsilon), self.level or 0.0
        at = f"at delta = {self.delta:g}, {RELATIONS[self.neighbours]}"
        lines = {
            "certified": [f"epsilon >= {number} {at}: certified lower bound, wrong with probability at most {level:g}"],
            "conditional": [
                f"epsilon >= {number} {at}, conditional on a trade-off curve of the family: {self.family}",
                f"  wrong with probability at most {level:g} there; no bound for any other mechanism",
            ],
            "credible": [f"epsilon above {number} {at}: credible with posterior probability {1.0 - level:g}, no confidence level"],
            "point_estimate": [f"epsilon about {number} {at}: point estimate without an interval; it proves nothing"],
        }[self.kind]
        lines += [f"  adversary  {_THREATS[self.threat]}", f"  counted    {self._counted()}", f"  rule       {self.rule}"]
        if self.at_best is not None:
            reach = f"so many trials can show epsilon >= {shown_down(self.at_best)} by this rule"
            lines.append(f"  at best    {reach}, whatever the mechanism reveals")
        return "\n".join(lines + [f"  warning    {warning}" for warning in self.warnings])

    def to_document(self) -> dict[str, Any]:
        """The result as plain data; `kind` is written for readers."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self}
        counts = {"game": self.counts.game, **self.counts.model_dump()}
        plain |= {"counts": counts, "epsilon": "inf" if self.epsilon == math.inf else self.epsilon}
        return {"kind": self.kind, **{name: value for name, value in plain.items() if name != "at_best" or value is not None}}

    @classmethod
    def from_document(cls, document: dict[str, Any], *, source: str | None = None) -> Self:
        """Build one from plain data; InputError as the constructor, or where it claims another kind than its estimator has."""
        if not isinstance(document, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            return super().from_document(document, source=source)
        result = super().from_document({key: value for key, value in document.items() if key != "kind"}, source=source)
        if document.get("kind", result.kind) != result.kind:
            raise InputError(f"kind: got {document['kind']!r}; {result.estimator} gives a {result.kind} result.", source=source)
        return result

    def _counted(self) -> str:
        counts = self.counts
        if isinstance(counts, Guesses):
            return f"{counts.correct} of {counts.guessed} guesses right, {counts.canaries} canaries with a coin each"
        out, inside = f"{counts.false_positives} of {counts.out_trials}", f"{counts.false_negatives} of {counts.in_trials}"
        return f"{out} OUT taken for IN, {inside} IN taken for OUT; one trial is a {self.unit}"


def rounded_down(value: float) -> str:
    """A lower bound with three decimals, never more than it is."""
    thousandths = math.floor(value * 1000.0)
    return f"{(thousandths if thousandths <= value * 1000.0 else thousandths - 1) / 1000.0:.3f}"

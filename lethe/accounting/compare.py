"""compare: what every theorem, ours and the published, says of a run, and why it is used or not; once, or along a sweep.

`lethe.compare`, the command line and reports call it with a Run and a delta: a user sees what each bound gives and what it would need.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import overload

import numpy as np

from lethe.accounting.certify import certificate_of, evaluate_theorems
from lethe.calculus.large_delta import delta_for
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison, ComparisonRow
from lethe.certificates.parts import OtherTheorem
from lethe.certificates.sweep import OVERS, WHOLE, Over, Sweep, changes_length, moved, own_value
from lethe.errors import InputError, require_finite
from lethe.errors.names import in_other_words
from lethe.run.fields import MOST_STEPS
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.run.schedules import Explicit
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL, OURS

Callback = Callable[[int, int], None]

_SAME = 1e-6  # certify takes epsilons that differ by no more for one number computed in two ways
_LIKE = "give numbers > 0, such as values=[10, 20, 50]."
_POINTS = 11  # of a default sweep; odd, so that the run itself is the middle one of most
THEOREM_NAMES = tuple(theorem.name for theorem in ALL)
"""Of all that can be compared."""


@overload
def compare(run: Run, delta: float, *, theorems: Sequence[Theorem | str] = ALL, allow_large_delta: bool = False) -> Comparison: ...


@overload
def compare(
    run: Run,
    delta: float,
    *,
    over: Over,
    values: Iterable[float] | None = None,
    theorems: Sequence[Theorem | str] = ALL,
    allow_large_delta: bool = False,
    progress: Callback | None = None,
) -> Sweep: ...


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def compare(
    run: Run,
    delta: float,
    *,
    over: Over | None = None,
    values: Iterable[float] | None = None,
    theorems: Sequence[Theorem | str] = ALL,
    allow_large_delta: bool = False,
    progress: Callback | None = None,
) -> Comparison | Sweep:
    """Every theorem's answer on `run`, and why it is used or not.

    Args:
        run: the training run, planned or recorded.
        delta: in (0, 1), and below 1/records.
        over: None for the run as it is; "steps" or "passes" for longer and shorter runs; "noise" for more and less noise; "step_size";
            "batch_size", with as many passes, or steps, as the run says; "smoothness" or "weak_convexity" of a loss that states it;
            "delta".
        values: of that; noises and step sizes that are a list or schedule are multiplied by them. None: a grid around the run, from one
            pass to ten times its passes, from a tenth to ten times its batch size, three decades of delta, else from a third to three
            times the run's own.
        theorems: those to compare, themselves or by name; by default Lethe's and the published ones. One must apply, as composition
            always does.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
        progress: told (points done, points in all) during a sweep.
    Returns:
        A Comparison, or a Sweep when `over` is given.
    Raises:
        InputError: a value out of range, a run without noise, or a listed schedule that would have to be stretched.
        HypothesisError: none of `theorems` can certify the run.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=4.0,
        ...     release="all")
        >>> comparison = lethe.compare(run, delta=1e-5)
        >>> next(row.theorem for row in comparison.rows if row.status == 'used')
        'composition'
    """
    delta = delta_for(require_run(run, correlated=True).records, delta, allow_large_delta=allow_large_delta)
    if over != "noise" and run.noise_multiplier is None:
        raise InputError(
            "noise_multiplier: null; this run has no noise yet.",
            remedy="set it, let `lethe plan` find it, or compare with over='noise' values=[5, 10, 20].",
        )
    if over is None:
        if values is not None:
            raise InputError("values: given without over.", remedy="add over='steps', over='passes' or over='noise'.")
        certificate, rows = _answers(run, delta, theorems)
        return Comparison(run=run, delta=delta, certificate=certificate, rows=tuple(sorted(rows, key=_rank)))
    grid = sweep_values(run, require_over(over), delta, values)
    # A value the run cannot take is found before the long work, not in its midst.
    deltas = [delta_for(run.records, value, allow_large_delta=allow_large_delta) if over == "delta" else delta for value in grid]
    for value in grid:
        _run_at(run, over, value)
    points: list[tuple[ComparisonRow, ...]] = []
    for value, value_delta in zip(grid, deltas, strict=True):
        points.append(_answers(_run_at(run, over, value), value_delta, theorems)[1])
        if progress is not None:
            progress(len(points), len(grid))
    return Sweep(run=run, delta=delta, over=over, values=grid, lines=tuple(zip(*points, strict=True)))


def _answers(run: Run, delta: float, theorems: Sequence[Theorem | str]) -> tuple[Certificate, tuple[ComparisonRow, ...]]:
    verdicts = evaluate_theorems(run, theorems)
    certificate = certificate_of(run, delta, verdicts)
    alternatives = {alternative.theorem: alternative for alternative in certificate.others}
    rows: list[ComparisonRow] = []
    for verdict in verdicts:
        theorem, named = verdict.theorem, alternatives.get(verdict.theorem.name)  # None: the one that was used
        first, *rest = [finding.name for finding in verdict.findings if finding.status == "fails"] or [None]
        row = ComparisonRow(
            theorem=theorem.name,
            status="used" if named is None else named.status,
            epsilon=certificate.epsilon if named is None else named.epsilon,
            hypothesis=first,
            why=_why(named, certificate.epsilon, seeded=verdict.with_fresh_noise is not None),
            also=tuple(dict.fromkeys(name for name in rest if name is not None and name != first)),
            covers=theorem.covers,
            citations=tuple(citation.key for citation in theorem.citations),
            ours=theorem.name in {ours.name for ours in OURS},
        )
        rows.append(row)
    return certificate, tuple(rows)


def _why(alternative: OtherTheorem | None, best: float, *, seeded: bool) -> str:
    if seeded and (alternative is None or alternative.status in ("looser", "dominated")):
        return "it is about noise that nobody can make again; this run's came from a chosen seed or generator"
    if alternative is None:
        proved = best < float("inf")
        return "the smallest epsilon that is proved" if proved else "NOT PRIVATE: nothing is proved; it gives no bound, nor does any other"
    if alternative.status not in ("looser", "dominated") or alternative.epsilon is None:
        return alternative.why
    if alternative.epsilon == float("inf"):
        against = "no bound"
    elif alternative.epsilon <= best * (1 + _SAME):
        against = "the same epsilon"
    elif alternative.epsilon < 1.1 * best:
        against = f"{100 * (alternative.epsilon / best - 1):.2g}% larger"
    else:
        against = f"{alternative.epsilon / best:.3g} times as large" if best > 0 else "larger than 0"
    if alternative.status == "dominated":
        return f"{alternative.why}; here {against}"
    return {"no bound": alternative.why, "the same epsilon": "applies, and says the same"}.get(against, f"applies, but looser: {against}")


def _rank(row: ComparisonRow) -> tuple[int, float, str, str]:
    group = 0 if row.status == "used" else 1 if row.usable else 2 if row.epsilon is not None else 3
    return group, row.epsilon or 0.0, row.hypothesis or "", row.reason if row.hypothesis else ""


def require_over(over: str) -> Over:
    """`over` itself if it names a quantity that a sweep can vary, or InputError."""
    if over in OVERS:
        return over
    hint = " did you mean 'smoothness' or 'weak_convexity'?" if over == "curvature" else ""
    remedy = f"add over='{OVERS[0]}', over='{OVERS[1]}' or another of them."
    raise InputError(f"over: got {over!r};{hint} it needs {', '.join(OVERS)}.", remedy=remedy)


def sweep_values(run: Run, over: Over, delta: float, values: Iterable[float] | None) -> tuple[float, ...]:
    """The values of a sweep, increasing, each once: those of the caller, or else a grid with the run itself among them."""
    for name in ("step_size", "noise_multiplier") if changes_length(run, over) else ():
        if isinstance(schedule := getattr(run, name), Explicit):
            raise InputError(
                f"over={over!r}: {name} lists {len(schedule.listed)} values, which do not say how a longer or shorter run goes on.",
                source=name,
                remedy="write it as a number or a {schedule: ...}, or vary over='noise'.",
            )
    if values is None:
        return _grid(run, over, delta)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"values: got {values!r}; it needs a list of numbers.", remedy=_LIKE)
    checked = {_require_value(over, value) for value in values}
    if not checked:
        raise InputError("values: got none; it needs at least one.", remedy=_LIKE)
    return tuple(sorted(checked))


def _run_at(run: Run, over: Over, value: float) -> Run:
    """The run at a value of the sweep; where there is none the error names the value."""
    try:
        return moved(run, over, value)
    except InputError as error:
        remedy = error.remedy or "give values=[...] that such a run can have."
        raise InputError(f"values: at {over} = {value}: {error.what}", source=error.source, remedy=remedy) from error


def _require_value(over: Over, value: float) -> float:
    if isinstance(value, bool):
        raise InputError(f"values: got {value!r}; it needs numbers.", remedy=_LIKE)
    try:
        number = require_finite("values: one entry", value, low=0.0, strict=over != "weak_convexity")
    except InputError as error:
        raise InputError(error.what, remedy=_LIKE) from error
    if over in WHOLE and number != int(number):
        raise InputError(f"values: got {value!r}; {over} are whole numbers >= 1.", remedy=_LIKE)
    return int(number) if over in WHOLE else number


def _grid(run: Run, over: Over, delta: float) -> tuple[float, ...]:
    if over in ("steps", "passes"):
        return _length_grid(run, over)
    moved(run, over, current := own_value(run, over, delta) or 0.0)  # a run without the quantity is refused, in words
    if over == "noise" and (not current or run.uncorrelated.noise_multipliers.max() == 0):
        raise InputError(
            "over='noise': the run has no noise to vary.", source="noise_multiplier", remedy="say which noises: values=[5, 10, 20]."
        )
    if over == "batch_size":
        sizes = np.geomspace(max(1.0, current / 10), min(10 * current, run.records), _POINTS)
        fitting = {round(size) for size in sizes} | {int(current)}
        groups = run.batches.groups_of_records
        if groups > 1:  # the sizes next to them of whose passes each group of records gets as many steps
            fitting = {max(1, run.records // (groups * max(1, round(run.records / (size * groups))))) for size in fitting}
        return tuple(sorted(size for size in fitting | {run.batch_size} if run.records // size % groups == 0))
    if over == "delta":
        largest = max(current, min(current * 1e3, 0.1 / run.records))
        deltas = {float(f"{value:.4g}") for value in np.geomspace(current * 1e-3, largest, _POINTS)}
        return tuple(sorted({value for value in deltas if value <= largest} | {current}))
    if current == 0:
        largest = own_value(run, "smoothness", delta) or 1.0
        return tuple(float(value) for value in np.linspace(0.0, largest, _POINTS))
    factors = 3.0 ** np.linspace(-1, 1, _POINTS)
    return tuple(current if factor == 1 else float(f"{current * factor:.4g}") for factor in factors)


def _length_grid(run: Run, over: Over) -> tuple[float, ...]:
    """Whole passes, which many theorems need; single steps for a run shorter than a pass."""
    length, total = run.steps_per_pass, run.total_steps
    unit = length if over == "passes" or total >= length else 1
    longest = max(1.0, min(10 * total, MOST_STEPS) // unit)
    counts = {round(count) for count in np.geomspace(1, longest, _POINTS)}
    if over == "passes":
        return tuple(sorted(counts | ({total // length} if total % length == 0 else set())))
    return tuple(sorted({count * unit for count in counts} | {total}))

"""Run: what a certificate needs of a training. Trainers record one, `plan` fills in its noise, `certify` and the theorems read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.documents.specification import Missing, StoredSpecification
from lethe.documents.strict import to_json
from lethe.errors import InputError, require_finite
from lethe.run import fields
from lethe.run.batches import MOST_RECORDS, Batches, Full, parse_batches
from lethe.run.fields import RELEASE, SHORTENING, ClipGroups, ClipMethod, NoiseAt, Release
from lethe.run.losses import Loss, Unknown, parse_loss
from lethe.run.noise import CorrelatedNoise, parse_noise, refuse_correlated, refuse_correlating
from lethe.run.participation import Neighbours, Participation, Unit, apart, usual
from lethe.run.precision import Precision, parse_precision
from lethe.run.regularisers import Regulariser, parse_regulariser
from lethe.run.schedules import as_schedule, parse_schedule
from lethe.run.schedules.shapes import Array, Schedule, read_only

_ScheduleField = Annotated[float | InstanceOf[Schedule], BeforeValidator(parse_schedule)]


class Run(StoredSpecification):
    r"""A private training run: for $t = 1..T$

    $$x_t = \mathrm{prox}_{\lambda_t h}\Big(x_{t-1} - \frac{\lambda_t}{b}\sum_{i\in B_t}\mathrm{Clip}_C(\nabla f_i(x_{t-1})) + \nu_t\Big),
    \qquad \nu_t \sim N(0, \tau_t^2 I),\quad \tau_t = \lambda_t z_t C / b.$$

    Args:
        records: n, the public number of records; of users, where they are the unit.
        batches: the batch design, with its nominal size b.
        passes: passes over the data; a pass is floor(n / b) steps. Exactly one of `passes` and `steps`.
        steps: T.
        step_size: $\lambda_t > 0$: number, list of T, or schedule.
        clip_norm: C, the norm each record's gradient is clipped to; None: no clipping, and the loss's gradient bound stands for C.
        clip_method: "clip"; "envelope": of linear models, gradients of each loss's Lipschitz envelope; "normalise" and "automatic", which
            bring short gradients up to (nearly) C as well, and are no projections; "adaptive": the norm $C_t$ goes from C to where about
            a share `clip_quantile` of the gradients is shorter. A count of these, with noise, is part of each step's release: one Gaussian
            mechanism of noise multiplier $z_t$. That of the gradients is $z_t/\sqrt{0.99}$; they and their noise are in units of $C_t/C$.
            "directional", "directional_isotropic": slopes along a public direction, with noise along it, or in all directions.
        clip_quantile: None, or in (0, 1), of the method "adaptive", such as 0.5.
        clip_groups: None, or $C_k > 0$ of groups of parameters that are clipped by themselves, $\sum_k C_k^2 \le C^2$.
        noise_multiplier: $z_t \ge 0$, noise relative to C on the *sum* of gradients: number, list, schedule, or None (still to be planned).
        noise_at: "every_step", or "pass_ends": noise only after the last step of a pass (and after the very last step); a list or
            schedule then has one entry a pass.
        pass_weights: None, or $\omega_1..\omega_\ell \ge 0$ up to a common factor (number: all alike; list; schedule): each pass ends at
            the weighted mean of its iterates. With $y_k = u_{k-1} - \lambda_k g_k$ and $u_k = \mathrm{prox}_{\lambda_k h}(y_k)$ inside
            the pass, its end is $\mathrm{prox}_{\lambda_\ell h}(\sum_k \omega_k y_k + \nu)$, $\sum_k \omega_k = 1$. Needs fixed
            batches, whole passes and noise at pass ends.
        noise_budget: None, or $\rho > 0$ of a budget filter: the noise of each step may be chosen in view of what was released before;
            a step that would bring some record's $\sum_t s_t^2/(2\tau_t^2)$ above $\rho$ is refused and ends the run. Every iterate
            counts as released; the multipliers are those that were used.
        noise: None: drawn anew at each step; or correlated over steps: $\nu_t = \frac{\lambda_t}{b} w_t$, $w = C^{-1}z$ with a strategy C
            of `lethe.run.noise` and $z_t \sim N(0, z^2C^2I)$, z one number. Needs noise at every step.
        loss: what is known of one record's loss.
        regulariser: h, or several that add up; None: h = 0.
        release: what anybody outside may ever see, which must be said. "last": only $x_T$; void once any earlier iterate, an average, a
            checkpoint kept for its score, or an optimiser's state leaves the training. "all": every iterate may be seen.
        neighbours: "add_or_remove": one record is there or not, of a design in which that moves no other; "zero_out", "replace_one": one
            is changed (into one without gradient, into another), with n public. None: add_or_remove, else zero_out; in files replace_one.
        sparse_selection: None, or the share s of each step's $1/z_t^2$ for the choice of table rows that get noise (`SparseSelection`).
        seeded: True: noise or secret batches came from a seed or generator that somebody chose, so that whoever has it can make them
            again: no release. False claims that all was drawn fresh and is known to nobody.
        precision: of the stored iterates, whose rounding counts where only the last is released; None: they are declared to be exact.
        unit: "record", or "user": $f_i$ is the mean loss of some of user i's records, clipped as one; `records` then counts users.
    Raises:
        InputError: an unknown key, no `release`, a wrong type, a number out of range, or fields that contradict one another.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=4.0,
        ...     release="all")
        >>> run.total_steps, run.steps_per_pass
        (50, 10)
    """

    _missing: ClassVar[Mapping[str, Missing]] = {"release": RELEASE}
    _kind = "run"
    _of_files: ClassVar[Mapping[str, Any]] = {"neighbours": "replace_one"}

    records: int = Field(ge=1, le=MOST_RECORDS)
    batches: Annotated[InstanceOf[Batches], BeforeValidator(parse_batches)]
    passes: int | None = Field(default=None, ge=1, le=MOST_RECORDS)
    steps: int | None = Field(default=None, ge=1, le=MOST_RECORDS)
    step_size: _ScheduleField
    clip_norm: float | None = Field(default=None, gt=0)
    clip_method: ClipMethod = "clip"
    clip_quantile: float | None = Field(default=None, gt=0, lt=1)
    clip_groups: ClipGroups = None
    noise_multiplier: _ScheduleField | None = None
    noise_at: NoiseAt = "every_step"
    pass_weights: _ScheduleField | None = None
    noise_budget: float | None = Field(default=None, gt=0)
    noise: Annotated[InstanceOf[CorrelatedNoise] | None, BeforeValidator(parse_noise)] = None
    loss: Annotated[InstanceOf[Loss], BeforeValidator(parse_loss)] = Unknown()
    regulariser: Annotated[InstanceOf[Regulariser] | tuple[InstanceOf[Regulariser], ...] | None, BeforeValidator(parse_regulariser)] = None
    release: Release
    neighbours: Annotated[Neighbours, BeforeValidator(usual)] = Field(default=cast(Neighbours, None), validate_default=True)
    sparse_selection: float | None = Field(default=None, gt=0, lt=1)
    seeded: bool = False
    unit: Unit = "record"
    precision: Annotated[InstanceOf[Precision] | None, BeforeValidator(parse_precision)] = None

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        fields.refuse_batches(self.batches, self.records, self.neighbours)
        fields.refuse_length(self.passes, self.steps, self.total_steps)
        fields.refuse_gradients(self.clip_norm, self.loss, self.regularisers)
        fields.refuse_clipping(self.clip_norm, self.clip_method, self.clip_groups, self.loss, self.unit)
        fields.refuse_quantile(
            self.clip_quantile,
            self.clip_method,
            self.sparse_selection,
            no_clip_norm=self.clip_norm is None,
            clip_groups=self.clip_groups is not None,
            correlated_noise=self.noise is not None,
            noise_budget=self.noise_budget is not None,
            noise_at_pass_ends=self.noise_at != "every_step",
            release_last=self.release != "all",
        )
        fields.refuse_standstill(self._expanded("step_size", self.step_size, self.total_steps))
        if self.noise_multiplier is not None:
            self._expanded("noise_multiplier", self.noise_multiplier, self._noise_entries)
        if self.noise is None:
            self._in_range()
        else:  # its numbers are those of the same run with independent noise, which has been checked
            refuse_correlating(self.noise, self.uncorrelated)
        if self.pass_weights is not None:
            fields.refuse_averaging(self.batches, self.noise_at, steps=self.total_steps, per_pass=self.steps_per_pass)
            fields.refuse_no_weight(self._expanded("pass_weights", self.pass_weights, self.steps_per_pass))
        if self.noise_budget is not None:
            fields.refuse_filtering(self.batches, self.noise_at, release=self.release, averaged=self.pass_weights is not None)
        fields.refuse_relation(self.loss, self.neighbours, differences_only=self.bounds_differences_only)
        return self

    # Written out because the cached arrays live beside the fields, and arrays have no truth value to compare by.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    @property
    def steps_per_pass(self) -> int:
        r"""$\ell$, of the design: `Batches.per_pass`."""
        return self.batches.per_pass(self.records)

    @property
    def total_steps(self) -> int:
        """T."""
        return self.steps if self.steps is not None else (self.passes or 0) * self.steps_per_pass

    @property
    def batch_size(self) -> int:
        """b, the nominal batch size and public divisor."""
        return self.batches.nominal_size(self.records)

    @property
    def clip_bound(self) -> float:
        """C: clip_norm, or the loss's gradient bound when there is no clipping; the unit of the noise multiplier."""
        bound = self.clip_norm if self.clip_norm is not None else self.loss.known_gradient_bound
        assert bound is not None  # _consistent has refused the rest
        return bound

    @property
    def record_bound(self) -> float:
        """The largest norm one record's gradient has in the sum: the smaller of clip_norm and the loss's bound, where that can be true."""
        if self.clip_norm is None or self._impossible_bound or self.clip_method not in SHORTENING or self.sparse_selection is not None:
            return self.clip_bound  # a map of rows has norm C whatever the gradient's is
        return min(self.clip_bound, self.loss.known_gradient_bound or self.clip_bound)

    @property
    def touch_bound(self) -> float:
        """Half of how far apart two records' contributions to one step can be when one replaces the other; else `record_bound`.

        A bound that a strongly convex loss exceeds somewhere is one on what differs between records. Clipping is a projection and brings
        two gradients no further apart, so it remains one where the batches are of exact size and the other record takes the same place.
        """
        together = self.batches.exact_size and self.neighbours == "replace_one" and self.clip_method in SHORTENING
        bound = min(self.clip_bound, self.loss.known_gradient_bound or self.clip_bound)
        return bound if together and self._impossible_bound and self.sparse_selection is None else self.record_bound

    @property
    def clips(self) -> bool:
        """Whether clipping can act: a clip norm is set and the loss may exceed it, or that of a group, or short gradients are changed."""
        if self.clip_norm is None or self.clip_method not in ("clip", "envelope"):
            return self.clip_norm is not None
        return self._impossible_bound or self.loss.may_exceed(min(self.clip_groups or (self.clip_norm,)))

    @property
    def clips_in_groups(self) -> bool:
        """Whether several groups of parameters are clipped by themselves, so that a gradient may be turned."""
        return self.clip_groups is not None and len(self.clip_groups) > 1

    @property
    def bounds_differences_only(self) -> bool:
        """Whether the stated gradient bound can only be one on what differs between records.

        Without clipping, on a domain where no strongly convex loss has gradients that small, a term common to all records (L2
        regularisation inside each loss) must exceed it. Between two records it cancels, so two contributions to one batch differ by at
        most twice the bound; a contribution itself, or a change of one record's gradient along the path, may be larger.
        """
        return self.clip_norm is None and self._impossible_bound

    @property
    def _impossible_bound(self) -> bool:
        """Whether the loss's gradient bound contradicts its strong convexity: gradients vary by that times the diameter."""
        bound, curvature = self.loss.known_gradient_bound, self.loss.curvature
        return bound is not None and curvature is not None and curvature[0] < 0 and -curvature[0] * self.diameter / 2 > bound

    @property
    def touch_factor(self) -> float:
        """How many gradient bounds apart one record's two contributions can be: 2 when it is replaced, else 1."""
        return apart(self.neighbours)

    @property
    def regularisers(self) -> tuple[Regulariser, ...]:
        """The regularisers, none, one or several."""
        if self.regulariser is None:
            return ()
        return self.regulariser if isinstance(self.regulariser, tuple) else (self.regulariser,)

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the proximal part: the sum over regularisers."""
        return sum(part.strong_convexity for part in self.regularisers)

    @property
    def diameter(self) -> float:
        """Diameter of the domain: the smallest over regularisers, inf when unbounded."""
        return min((part.diameter for part in self.regularisers), default=float("inf"))

    @property
    def noisy_steps(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """The 0-based steps that noise_at gives noise to, in order: all, or the last step of every pass and the last of all."""
        if self.noise_at == "every_step":
            return np.arange(self.total_steps)
        ends = np.arange(1, self._noise_entries + 1) * self.steps_per_pass
        return np.minimum(ends, self.total_steps) - 1

    @cached_property
    def uncorrelated(self) -> Run:
        """The same run with independent noise: its noise is what correlated noise is made of. No bound on it is one on this run."""
        return self if self.noise is None else self.replace(noise=None)

    @cached_property
    def step_sizes(self) -> Array:
        r"""$\lambda_t$, shape (T,)."""
        return read_only(as_schedule(self.step_size).values(self.total_steps))

    @cached_property
    def noise_multipliers(self) -> Array:
        """z_t, shape (T,), zero at steps without noise."""
        refuse_correlated(self.noise)
        if self.noise_multiplier is None:
            raise InputError(
                "noise_multiplier: null; this run has no noise yet.",
                remedy="set it, or let lethe.plan(run, epsilon=..., delta=...) find it.",
            )
        multipliers = np.zeros(self.total_steps)
        multipliers[self.noisy_steps] = as_schedule(self.noise_multiplier).values(self._noise_entries)
        return read_only(multipliers)

    @cached_property
    def noise_stds(self) -> Array:
        r"""$\tau_t = \lambda_t z_t C / b$, the noise standard deviation in parameter units, shape (T,)."""
        return read_only(self.step_sizes * self.noise_multipliers * (self.clip_bound / self.batch_size))

    @cached_property
    def rounding_errors(self) -> Array | None:
        """How far rounding can move two iterates apart in a step, shape (T,); None where `precision` is not known."""
        if self.precision is None:
            return None
        return read_only(self.precision.errors(self.step_sizes, sum(part.roundings for part in self.regularisers)))

    @cached_property
    def sensitivities(self) -> Array:
        r"""$s_t = (2\text{ or }1)\,\lambda_t G / b$: how far one touch moves the iterate, in parameter units, shape (T,)."""
        return read_only(self.step_sizes * (self.touch_factor * self.touch_bound / self.batch_size))

    @cached_property
    def relative_noise(self) -> Array:
        r"""$\tau_t / s_t$: noise in units of one touch, shape (T,); exactly $z_t$ / touch_factor when G = C."""
        return read_only(self.record_noise / self.touch_factor)

    @cached_property
    def record_noise(self) -> Array:
        r"""$z_t C/G$: noise of the batch sum in units of `touch_bound`, shape (T,)."""
        largest = float(np.finfo(np.float64).max)  # an infinite quotient times no noise would be no number
        return read_only(self.noise_multipliers * min(self.clip_bound / self.touch_bound, largest))

    @cached_property
    def pass_averages(self) -> Array | None:
        r"""$\omega_k$, the share of the k-th iterate in what its pass ends at, shape (l,), sum 1; None: the last one is all there is."""
        if self.pass_weights is None:
            return None
        weights = self._expanded("pass_weights", self.pass_weights, self.steps_per_pass)
        return read_only(weights / weights.max() / (weights / weights.max()).sum())

    @property
    def run_id(self) -> str:
        """Eight hexadecimal digits of the document's SHA-256: the same run has the same name."""
        return hashlib.sha256(to_json(self.to_document(), indent=None).encode()).hexdigest()[:8]

    def replace(self, **changes: Any) -> Run:
        """A copy with some fields changed and everything checked again; giving passes drops steps, and the reverse."""
        changes, fields = self.respelt(changes), self._fields_by_name()
        if changes.get("passes") is not None:
            fields["steps"] = None
        if changes.get("steps") is not None:
            fields["passes"] = None
        return Run(**{**fields, **changes})

    def in_full_batches(self) -> Run:
        """The same mechanism said with full batches, where every batch holds every record; else the run itself."""
        whole = self.batches.whole(self.records) and self.batches.participation is not Participation.EVERY_STEP
        return self.replace(batches=Full()) if whole else self

    def with_noise_scaled(self, factor: float) -> Run:
        """The same run with every noise multiplier times `factor`, a finite number >= 0."""
        factor = require_finite("factor", factor, low=0.0)
        if self.noise_multiplier is None:
            return self.replace(noise_multiplier=factor)
        return self.replace(noise_multiplier=as_schedule(self.noise_multiplier).scaled(factor))

    def to_document(self) -> dict[str, Any]:
        """The run as plain data, in the field order of the schema; of passes and steps only the one that was given."""
        return fields.run_document(self._fields_by_name())

    def _in_range(self) -> None:
        steps, noise = fields.STEP_RANGES, fields.NOISE_RANGES
        ranges = steps if self.noise_multiplier is None else {**steps, **noise}
        for quantity, limits in ranges.items():
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                values: Array = getattr(self, quantity)
            fields.refuse_out_of_range(limits, values if quantity in steps else values[self.noise_multipliers > 0])

    def _fields(self) -> tuple[Any, ...]:
        return tuple(self._fields_by_name().values())

    def _fields_by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    @property
    def _noise_entries(self) -> int:
        return self.total_steps if self.noise_at == "every_step" else -(-self.total_steps // self.steps_per_pass)

    def _expanded(self, name: str, value: float | Schedule, count: int) -> Array:
        unit = "pass" if name == "noise_multiplier" and self.noise_at == "pass_ends" else "step"
        return fields.expanded(name, value, count, unit="step of a pass" if name == "pass_weights" else unit)

r"""The cost of a cap on the size of random batches: in delta, or, of Poisson batches that are cut uniformly, within the divergence.

A batch of random size may be too large for memory, so trainers cut it at K records (`truncate_at`). `base` adds the chance of a cut to
$\delta$, `sampling` counts it within the divergence, `plan` leaves room for it.
"""

import math

from scipy import special

from lethe.calculus.rounding import round_down, round_up
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import Finding, fails, holds
from lethe.errors import InputError
from lethe.run.participation import BatchSizes, Participation
from lethe.run.run import Run
from lethe.theorems.steps import record_chance

# Against 50 digits the incomplete beta function was within 1e-12, up to 1e9 records.
_MARGIN = 1e-9
# Below this the incomplete beta function may underflow to 0, which no tail that can happen is.
_LEAST = 1e-290
# Beyond so many full batches in the mean pass of random allocation, its bound says no more than delta does.
_MOST_FULL_A_PASS = 0.5


def truncation_slack(run: Run) -> float:
    r"""How much the cap on the size of a run's batches adds to $\delta$: the chance that the other records alone reach the cap.

    Let a batch of more than `cap` records be cut down to `cap` by any rule, at random or not. Write $K_t$ for how many records of step t's
    draw are not the record in which two neighbouring data sets differ, $m$ for how many such records there are, and T for the steps.

    $$s = \Pr[\exists t: K_t \ge \mathrm{cap}], \qquad
    s = 1 - (1 - \Pr[\mathrm{Bin}(m, b/n) \ge \mathrm{cap}])^T \ \text{(poisson)}, \qquad
    s \le \ell\,\Pr[\mathrm{Bin}(m, 1/\ell) \ge \mathrm{cap}] \ \text{(balls in bins)}, \qquad
    s \le T\,\Pr[\mathrm{Bin}(m, 1/\ell) \ge \mathrm{cap}] \ \text{(random allocation)}$$

    with $m = n - 1$ when a record is replaced or zeroed out, and $m = n$ when one is added or removed (the larger data set may have
    n + 1). Balls are thrown once, so only the $\min(\ell, T)$ bins that are visited count.

    If the run without a cap is $(\epsilon, \delta)$-DP given the draws of the other records, whenever these leave every batch below the
    cap, then the run with the cap is $(\epsilon, \delta + s)$-DP (docs/theory.md, Theorem 7a). A guarantee over all draws together is not
    enough: it would cost $(1 + e^\epsilon)s$.

    Rounded up; 0 where nothing is ever cut, and where the other records are fewer than the cap.
    """
    if not isinstance(run, Run):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"run: got {type(run).__name__}; it needs a lethe.Run.")
    cap = run.batches.cap
    if cap is None:
        return 0.0
    other_records = run.records if run.neighbours == "add_or_remove" else run.records - 1
    chance, batches = record_chance(run)
    if run.batches.fixed:  # only the bins that are visited count
        return min(1.0, round_up(min(batches, run.total_steps) * _tail(other_records, chance, cap), _MARGIN))
    return _ever(_tail(other_records, chance, cap), batches)


def full_batches(run: Run) -> tuple[float, float] | None:
    r"""The chance p, rounded down, that the other records of a step fill its batch, and r, by which `TruncatedPoisson` counts the cut.

    With K for the cap, the record is in such a batch, chosen uniformly, with the chance

    $$pr = \sum_{k \ge K}\Pr[\mathrm{Bin}(m, q) = k]\,\frac{qK}{k+1} = \frac K{m+1}\Pr[\mathrm{Bin}(m+1, q) > K],$$

    rounded up. Where a record is added or removed, p is that of $m = n - 1$ and $pr$ the larger one of $m = n - 1$ and $n$: the bound falls
    when p grows and pr does not. None: no batch is cut, or not by Theorem 7d of docs/theory.md, or so seldom that p is next to nothing.
    """
    cap, chance = run.batches.cap, run.batch_size / run.records
    each_by_itself = run.batches.participation is Participation.INDEPENDENT_DRAW and run.batches.sizes is BatchSizes.BINOMIAL
    if cap is None or not each_by_itself or chance >= 1.0:
        return None
    other_counts = (run.records - 1, run.records) if run.neighbours == "add_or_remove" else (run.records - 1,)
    tail = _tail(other_counts[0], chance, cap)
    full = round_down(tail, 3.0 * _rounding(chance, cap))
    if not full > 2.0 * _LEAST:
        return None
    kept_share = max(round_up(cap / (count + 1) * _tail(count + 1, chance, cap + 1), _MARGIN) for count in other_counts) / full
    return (full, round_up(kept_share, _MARGIN)) if kept_share < 1.0 - 2.0 * _MARGIN else None


def full_bins(run: Run) -> float | None:
    r"""The chance $\Pr[\mathrm{Bin}(m, 1/\ell) \ge K]$ that the others fill a batch of a pass of random allocation, rounded up.

    None: no batch is cut, or not by Theorem 7e of docs/theory.md, or in most passes.
    """
    fresh = run.batches.participation is Participation.FRESH_SECRET_SLOT and run.batches.sizes is BatchSizes.BINOMIAL
    if (cap := run.batches.cap) is None or not fresh or run.steps_per_pass == 1:
        return None
    full = _tail(run.records - (run.neighbours != "add_or_remove"), 1.0 / run.steps_per_pass, cap)
    return full if 0.0 < full * run.steps_per_pass < _MOST_FULL_A_PASS else None


def counted_within(run: Run) -> float | None:
    """The chance that the others fill a batch, where the theorem of the run's design counts the cut within the divergence; else None."""
    return poisson[0] if (poisson := full_batches(run)) is not None else full_bins(run)


def examine_cap(run: Run, *, given_the_others: bool, counts_cap: bool) -> tuple[Finding, ...]:
    """A theorem's finding about a cap on batch sizes; empty if there is none.

    `given_the_others`: the theorem's bound holds given the other records' draws, as `truncation_slack` needs. `counts_cap`: it counts
    what is `counted_within` the divergence.
    """
    cap = run.batches.cap
    if cap is None:
        return ()
    if counts_cap and (fill_chance := counted_within(run)) is not None:
        chance = f"a chance of {shown(fill_chance)} a step that the others fill one"
        return (holds("cap", f"batches cut uniformly at {cap} records, counted within each step: {chance}"),)
    if given_the_others:
        slack = truncation_slack(run)
        cost = f"costs {shown(slack)} in delta" if slack > 0.0 else "costs nothing: they never hold more"
        return (holds("cap", f"batches cut at {cap} records, which {cost}"),)
    return (
        fails(
            "cap",
            f"it is about batches as they are drawn; this run's are cut at {cap} records",
            source=f"batches.truncate_at = {cap}",
            remedy="use one of Lethe's own theorems, which charge delta for the cut, or drop truncate_at.",
        ),
    )


def require_room(run: Run, delta: float) -> None:
    """Of a run of which nothing is proved at `delta`: refuse it where the cap on batches uses that up.

    Raises:
        InputError: `delta` is not above the run's `truncation_slack`.
    """
    slack = truncation_slack(run)
    if slack > 0.0 and not delta > slack:
        raise InputError(
            f"delta: got {delta:g}; the cap of {run.batches.cap} records on a batch alone costs {slack:.4g}.",
            source=f"batches.truncate_at = {run.batches.cap}, nominal size {run.batch_size}, {run.total_steps} steps",
            remedy="raise truncate_at, or drop it: TrainOptions(physical_size=64) bounds the memory and costs nothing.",
        )


def _tail(count: int, chance: float, threshold: int) -> float:
    r"""$\Pr[\mathrm{Bin}(m, p) \ge c] = I_p(c, m - c + 1)$, rounded up.

    Drawing with 53-bit keys moves p by up to $2^{-53}$, and $\partial\log I_p/\partial p \le c/(p(1-p))$.
    """
    if threshold > count or chance >= 1.0:
        return float(threshold <= count)
    return min(1.0, max(round_up(float(special.betainc(threshold, count - threshold + 1, chance)), _rounding(chance, threshold)), _LEAST))


def _rounding(chance: float, threshold: int) -> float:
    """By what share of it a tail may be off."""
    return _MARGIN + threshold / (chance * (1.0 - chance)) * 2.0**-52


def _ever(chance: float, times: int) -> float:
    """The chance that what happens with `chance` at each of so many independent times ever happens, rounded up."""
    return 1.0 if chance >= 1.0 else min(1.0, round_up(-math.expm1(times * math.log1p(-chance)), _MARGIN))

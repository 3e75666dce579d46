"""Runs to begin with, one for each usual way to train: YAML with comments, which `lethe certify` accepts as it stands."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from lethe.errors import InputError


class Task(NamedTuple):
    """A usual way to train: what it is, and the fields of its run."""

    what: str
    fields: str


_HEAD = """\
# {what}
# lethe certify THIS-FILE --delta 1e-5              what can be proved of it as it stands
# lethe plan THIS-FILE --epsilon 1 --delta 1e-5     the smallest noise that meets a target
records: 60000   # of the training set; this number is public
"""
_LAST = "release: last   # nothing but the final weights is ever shown or used; all: every iterate may be"
_ALL = "release: all   # every iterate may be shown; of a loss that is not convex the last one alone is proved no better"
_EVERY = "noise_at: every_step   # or pass_ends, if only the last iterate is released and batches are fixed"
_NORM = "feature_norm: 1.0, evidence: enforced"
_LOGISTIC = f"loss: {{kind: logistic_regression, {_NORM}}}   # longer rows are projected by the code that trains"
_CLIP = "clip_norm: 1.0   # the norm to which each record's gradient is clipped"
_NOISE = "noise_multiplier: 10.0   # of the batch sum, over its sensitivity; `lethe plan` finds it"
_ZEROED = "neighbours: zero_out   # one record's contribution becomes zero; or replace_one, which takes twice the noise"

TASKS: dict[str, Task] = {
    "softmax_head": Task(
        "Softmax regression, such as a linear head on a frozen network: fixed batches, noise at the ends of passes, the last iterate.",
        f"""\
batches: {{design: cyclic, size: 600}}   # disjoint, in a fixed order
passes: 20
step_size: 2.0   # at most 2/smoothness; the smoothness is feature_norm^2 / 2
{_NOISE}
noise_at: pass_ends   # all noise after the last step of each pass
loss: {{kind: softmax_regression, {_NORM}, intercept: false}}   # longer rows are projected by the code that trains
{_LAST}
{_ZEROED}""",
    ),
    "cyclic_logistic": Task(
        "Logistic regression for two classes: fixed batches in a fixed order, the last iterate.",
        f"""\
batches: {{design: cyclic, size: 600}}   # disjoint, in a fixed order
passes: 20
step_size: 4.0   # at most 2/smoothness; the smoothness is feature_norm^2 / 4
{_NOISE}
{_EVERY}
{_LOGISTIC}
{_LAST}
{_ZEROED}""",
    ),
    "shuffled_logistic": Task(
        "Logistic regression on batches that are shuffled once, in secret: the last iterate.",
        f"""\
batches: {{design: shuffled_once, size: 600}}   # one secret permutation, drawn before training
passes: 20
step_size: 4.0   # at most 2/smoothness; the smoothness is feature_norm^2 / 4
{_NOISE}
{_EVERY}
{_LOGISTIC}
{_LAST}
{_ZEROED}""",
    ),
    "full_batch_logistic": Task(
        "Logistic regression with a ridge, every record at every step: the last iterate.",
        f"""\
batches: {{design: full}}
passes: 100
step_size: 4.0   # at most 2/smoothness; the smoothness is feature_norm^2 / 4, and the ridge's strength besides
noise_multiplier: 10.0   # of the sum, over its sensitivity; `lethe plan` finds it
noise_at: every_step
{_LOGISTIC}
regulariser: {{kind: ridge, strength: 0.01}}   # beside the mean loss
{_LAST}
{_ZEROED}""",
    ),
    "least_squares": Task(
        "Least squares with truncated residuals: fixed batches, the last iterate.",
        f"""\
batches: {{design: cyclic, size: 600}}   # disjoint, in a fixed order
passes: 20
step_size: 0.5   # at most 2/smoothness; the smoothness is feature_norm^2
{_NOISE}
{_EVERY}
loss: {{kind: least_squares, {_NORM}, residual_bound: 1.0}}   # scale targets by a public constant, so that few residuals are larger
{_LAST}
{_ZEROED}""",
    ),
    "poisson_network": Task(
        "DP-SGD on any network: Poisson batches, clipped gradients, as Opacus and JAX Privacy train.",
        f"""\
batches: {{design: poisson, size: 600}}   # each record with probability 600/60000 at each step, in secret
steps: 2000
step_size: 0.5
{_CLIP}
noise_multiplier: 1.0   # of the batch sum, over clip_norm; `lethe plan` finds it
{_ALL}
neighbours: add_or_remove   # one record is there or not""",
    ),
    "shuffled_network": Task(
        "Any network on batches that are shuffled anew in every pass, in secret; clipped gradients.",
        f"""\
batches: {{design: shuffled, size: 600}}   # a secret permutation for every pass
passes: 20
step_size: 0.5
{_CLIP}
noise_multiplier: 4.0   # of the batch sum, over clip_norm; `lethe plan` finds it
{_ALL}
neighbours: zero_out   # or replace_one; one record's contribution becomes zero""",
    ),
    "balls_in_bins_network": Task(
        "Any network on batches into which each record falls at random, once a pass; clipped gradients.",
        f"""\
batches: {{design: balls_in_bins, size: 600}}   # each record falls into one of 100 bins, in secret, for all passes
passes: 20
step_size: 0.5
{_CLIP}
noise_multiplier: 4.0   # of the batch sum, over clip_norm; `lethe plan` finds it
{_ALL}
neighbours: zero_out   # or add_or_remove""",
    ),
}


def task_run(name: str) -> str:
    """The text of the run.

    Raises:
        InputError: no task has that name.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        raise InputError(
            f"TASK: got {name!r};{f' did you mean {near[0]!r}?' if near else ''} it needs one of {', '.join(TASKS)}.",
            remedy="`lethe init` lists them; `lethe init --data FILE --target COLUMN` is for a table of yours.",
        )
    task = TASKS[name]
    return _HEAD.format(what=task.what) + task.fields + "\n"

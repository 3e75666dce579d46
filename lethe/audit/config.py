"""AuditConfig: one audit, described in full before anything is trained.

Users and `lethe audit` give it to `audit` (trainers/audits.py): how many trainings, which canary (a record made to be remembered), which
adversary and level. What is fixed beforehand cannot be chosen by its result.
"""

import os
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf

from lethe.audit.statistics.curves import Level, Threat
from lethe.audit.statistics.one_run import GuessPairs
from lethe.audit.statistics.rules import ThresholdRule
from lethe.documents.specification import Specification, from_tagged
from lethe.documents.strict import as_path
from lethe.errors import InputError

CanaryKind = Literal["auto", "mislabelled", "blank", "random_direction", "least_moved"]
MOST_RUNS = 1_000_000


def _as_text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(as_path(path))


def _require_some(workers: int) -> int:
    if workers == 0:
        raise InputError("workers: got 0; it needs a number of processes, or -1 for one a core.")
    return workers


Workers: TypeAlias = Annotated[int, AfterValidator(_require_some)]


class TwoWorldGame(Specification):
    """Many trainings, half of them without the canary: one test for two hypotheses.

    Args:
        runs: trainings in each world, 2 to 1,000,000; fixed in advance, as stopping where the scores look best has no level.
        rule: where the threshold is, declared before the scores are there; None: `usual_ranks(runs)`.
        position: of the canary among the records, from 0; None: the last one that the run uses.
        workers: joblib's n_jobs, such as 2, or -1 for every core; None: what `joblib.parallel_config` says (a Dask or Ray cluster), or one.
        score_file: keeps each score when its training ends, as JSON lines; None: none are kept.
    """

    kind: ClassVar[str] = "two_world"
    runs: int = Field(default=1000, ge=2, le=MOST_RUNS)
    rule: InstanceOf[ThresholdRule] | None = None
    position: int | None = Field(default=None, ge=0)
    workers: Workers | None = None
    score_file: Annotated[str | None, BeforeValidator(_as_text)] = None


class OneRunGame(Specification):
    """One training with many canaries, each there or not by its own fair coin, and guesses about the coins. No score is kept in a file.

    Args:
        canaries: how many, at least 4.
        guesses: pairs (k+, k-), how many canaries are guessed to be in and out, declared in advance; of several each gets an equal share
            of the level. None: `usual_guesses(canaries)`.
    """

    kind: ClassVar[str] = "one_run"
    canaries: int = Field(default=1000, ge=4)
    guesses: GuessPairs | None = None


def _as_game(value: object) -> TwoWorldGame | OneRunGame:
    return from_tagged(value, tag="kind", classes={game.kind: game for game in (TwoWorldGame, OneRunGame)})


class AuditOptions(Specification):
    """The fields of `AuditConfig`, which explains them, that a configuration file has too."""

    threat: Threat = "final_model"
    canary: CanaryKind = "auto"
    level: Level = 0.05
    conditional: bool = True
    allow_large_delta: bool = False
    seed: int = Field(default=0, ge=0, le=2**64)


class AuditConfig(AuditOptions):
    r"""What is looked for, by which game, and what the bound is stated for. It can be compared, pickled and printed.

    Args:
        delta: $\delta \in [0, 1)$ of the lower bound on $\epsilon$.
        game: `TwoWorldGame` or `OneRunGame`, or the same as a mapping, such as {"kind": "two_world", "runs": 500}.
        threat: what the adversary sees: "black_box" (losses of the final model), "black_box_chosen_start" (from a start of its own
            choice), "final_model" (its parameters), "white_box" (every noisy step).
        canary: kind of record that is looked for; "auto": the trainer's own choice.
        level: $\alpha$ from 1e-12 to 1/2, the probability that a bound is above the truth.
        conditional: also give the bound that holds if the trade-off curve is Gaussian; there is none at $\delta = 0$.
        allow_large_delta: whether a delta >= 1/records is meant, where a run has to be certified.
        seed: whole number >= 0, of everything. Whoever audits with it knows the noise: none of these models may be released.
    """

    delta: float = Field(ge=0, lt=1)
    game: Annotated[TwoWorldGame | OneRunGame, BeforeValidator(_as_game)] = TwoWorldGame()

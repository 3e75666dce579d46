"""self_test: whether the audits tell correct trainers from faulty ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track

from lethe.audit.page import AuditPage
from lethe.audit.trainers.fault_cases import LEVEL, Case, Expected, cases


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelfTestRow:
    """What the audit said of one trainer.

    Args:
        name: of the row.
        trainer: what trained.
        broken: what is wrong with it, None: nothing.
        expected: what the audit must say.
        page: what it said.
        seconds: how long it took.
    """

    name: str
    trainer: str
    broken: str | None
    expected: Expected
    page: AuditPage
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether something was found: a bound above what is stated, or noise that was used again."""
        return self.page.failed

    @property
    def right(self) -> bool:
        """Whether the audit said what it must."""
        return self.caught == (self.expected == "caught")

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        plain = {"name": self.name, "trainer": self.trainer, "broken": self.broken, "expected": self.expected}
        return {**plain, "caught": self.caught, "right": self.right, "page": self.page.to_document(), "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelfTest:
    """The rows of a self-test."""

    rows: tuple[SelfTestRow, ...]

    @property
    def passed(self) -> bool:
        """Whether every broken trainer was caught, and none that is sound."""
        return all(row.right for row in self.rows)

    @property
    def seconds(self) -> float:
        """All rows together."""
        return sum(row.seconds for row in self.rows)

    def describe(self) -> str:
        """One line a trainer."""
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [
            f"{row.name:<{width}}  {'caught' if row.caught else 'quiet':<6}  {_numbers(row.page)}{'' if row.right else '  WRONG'}"
            for row in self.rows
        ]
        wrong = sum(not row.right for row in self.rows)
        said = "all as they should be" if self.passed else f"{wrong} of {len(self.rows)} are WRONG"
        return "\n".join([*lines, f"{said}; {self.seconds:.0f} seconds, level {LEVEL:g} each"])

    def to_dict(self) -> dict[str, Any]:
        """The self-test as plain data."""
        return {"passed": self.passed, "seconds": self.seconds, "level": LEVEL, "rows": [row.to_dict() for row in self.rows]}


def self_test(*, runs: int | None = None, seed: int = 0, workers: int | None = None, progress: bool = False) -> SelfTest:
    """Audit sound and broken variants of `fit` and `PrivacyEngine`, and three that learn nothing.

    Each broken one states a run and carries out another, or the same one with a seed or a divisor that it must not have.

    Args:
        runs: trainings in each world; None: as many as each needs, a few minutes in all.
        seed: of everything.
        workers: as for `play`.
        progress: a bar on standard error, if that is a terminal.
    Raises:
        InputError: an argument is outside its range.
    """
    console = Console(stderr=True)
    quiet = not progress or not console.is_terminal
    lines = track(cases(), description="self-test", console=console, disable=quiet, transient=True)
    return SelfTest(rows=tuple(_row(case, runs=runs, seed=seed, workers=workers) for case in lines))


def _row(case: Case, *, runs: int | None, seed: int, workers: int | None) -> SelfTestRow:
    page, seconds = case.played(runs=runs, seed=seed, workers=workers)
    return SelfTestRow(name=case.name, trainer=case.trainer, broken=case.broken, expected=case.expected, page=page, seconds=seconds)


def _numbers(page: AuditPage) -> str:
    stated = "" if page.claim is None else f"stated {page.claim.epsilon:.3g}, "
    strongest = page.strongest
    return f"{stated}{page.verdict if strongest is None else f'found {strongest.epsilon:.3g}'}"

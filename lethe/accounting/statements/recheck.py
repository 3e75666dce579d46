"""recheck_statement: compute a statement's guarantee again from its mechanism's numbers, and compare."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lethe._version import __version__
from lethe.accounting.recheck import DELTAS, close, same_content
from lethe.calculus.any_guarantee.stored import require_relation
from lethe.certificates.derivation import Derivation
from lethe.certificates.findings import Finding, holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError, LetheError

# A convolution of the same parts, one of which was rounded in its last digit, has another grid; what counts is what is computed here.
_CONVOLVED = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckedStatement:
    """A statement whose numbers follow from its mechanism.

    Args:
        statement: with the guarantee as this version of Lethe computes it; one with a seal that is believed as it was sealed.
        stated: of which releases in it the guarantee is only written, by name: nothing computes it.
        assumed: guarantees that its own is computed from, in words: of one try of a search, which each try was held to.
        unseen: of which releases in it the numbers are those of a file, by name: nothing shows that the mechanism ran with them.
        apart: of which statements in it the parts are said to be on disjoint records, by name.
    """

    statement: Statement
    stated: tuple[str, ...]
    assumed: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def declared(self) -> tuple[Finding, ...]:
        """What it rests on that nothing proves: numbers that are only written, and its declared hypotheses.

        A file may leave hypotheses out. So that of files the mechanism ran as its numbers say, and that parts are disjoint, is told here
        whatever the file lists.
        """
        numbers = [holds("guarantee", f"of {name}, taken as it is written", evidence="declared") for name in self.stated]
        numbers += [holds("guarantee", f"of {line}", evidence="declared") for line in self.assumed]
        if self.unseen:
            words = f"that {', '.join(self.unseen)} ran with these numbers, and as its theorem needs"
            numbers.append(holds("mechanism", words, evidence="declared"))
        if not any(finding.name == "disjoint parts" for finding in self.statement.findings):
            numbers += [holds("disjoint parts", f"of {name}, each record in one of them", evidence="declared") for name in self.apart]
        return (*numbers, *(finding for finding in self.statement.findings if finding.evidence == "declared"))


def recheck_statement(statement: Statement) -> RecheckedStatement:
    """Compute the guarantee of a statement from the numbers of its mechanism, and compare it with what it says.

    That the mechanism ran with these numbers nothing shows: what it rests on is enforced only by the word of the code, and of a file
    declared; a seal that is believed says that it did. A statement without numbers, or of a mechanism that is not known here, keeps its
    guarantee, named in `stated`.

    Raises:
        InputError: what it says does not follow from its numbers, or its seal is broken.
    """
    from lethe.accounting.statements.derivations import computed  # loads every mechanism

    if statement.seal is not None and statement.seal.flaw:
        raise _refused(statement, f"its seal is {statement.seal.flaw}", what="is not to be relied on")
    try:
        require_relation(statement.planned, statement.neighbours)
        found = computed(statement)
    except LetheError as error:
        raise _refused(statement, error.what.rstrip(".")) from error
    inner = known_records(statement.derivation)
    if inner is not None and statement.records is not None and statement.records < inner:
        raise _refused(statement, f"it says {statement.records} records, and a release in it is of {inner}")
    claimed, proved = statement.planned, found.guarantee
    same = same_content(claimed.to_dict(), proved.to_dict())
    for delta in (*(() if statement.target_delta is None else (statement.target_delta,)), *DELTAS):
        one, other = claimed.epsilon(delta), proved.epsilon(delta)
        if not close(one, other) and not (same and math.isclose(one, other, rel_tol=_CONVOLVED)):
            why = f"it claims epsilon = {claimed.epsilon(delta):g} at delta = {delta:g}; from its numbers follows {proved.epsilon(delta):g}"
            raise _refused(statement, why)
    if not same:
        raise _refused(statement, "the parts of its guarantee are not those that its mechanism has")
    records = inner if statement.records is None else statement.records
    again = replace(statement, records=records, seal=None, **{"with_fresh_noise" if statement.seeded else "guarantee": proved})
    # What was sealed elsewhere may be rounded in other digits, and is whole as it was signed; of a stranger's nothing counts.
    sealed = statement.seal is not None and (statement.seal.holds or again.to_dict() == replace(statement, seal=None).to_dict())
    kept = statement if sealed else again
    return RecheckedStatement(statement=kept, stated=found.stated, assumed=found.assumed, unseen=found.unseen, apart=found.apart)


def known_records(known: Derivation | None) -> int | None:
    """The largest number of records that the numbers of a mechanism, or of a part, are about; None where none says it."""
    if known is None:
        return None
    numbers = known.parameters
    run = numbers.get("run")
    said = [numbers.get("records"), run.get("records") if isinstance(run, dict) else None]
    phases = numbers.get("phases")
    said += [phase.get("stop") for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []
    said += [part.records for part in known.parts]
    said += [known_records(part.derivation) for part in known.parts]
    return max((one for one in said if isinstance(one, int)), default=None)


def _refused(statement: Statement, why: str, *, what: str = "does not follow from its mechanism") -> InputError:
    hint = "" if statement.version == __version__ else "; another version may prove other numbers, and then its statements do not hold here"
    return InputError(
        f"this statement {what}: {why}.",
        source=f"{statement.name}, written by lethe {statement.version}, read by lethe {__version__}{hint}",
        remedy="do not rely on it; ask for the statement of the fit itself.",
    )

"""Total: what several releases from the same records cost together, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from lethe.accounting.parts import MOST_TIMES, Part, digest, part_of, refuse_repeated
from lethe.calculus.any_guarantee import joined
from lethe.calculus.domains import require_count, require_nonnegative
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.large_delta import delta_for, is_large, large_delta_note, open_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.claims import UNREADABLE, Claims, no_such_document
from lethe.certificates.keys import PublicKey
from lethe.certificates.parts import Citation, exactly, read_text, relation_words
from lethe.documents.shortened import page_in_few_lines
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.neighbours import NOUNS, Unit
from lethe.run.run import Neighbours

FIXED_BEFORE = (
    "holds if the guarantee of every part was fixed before anything was released; what a part computed may depend on earlier releases. "
    "Not covered: parts, noise or a number of parts chosen after looking at a release; that needs a privacy filter."
)
SAME_USERS = "one person is one user, the same in every part, and nothing else about these users was released"
SAME_RECORDS = "one person is one record, the same in every part, and nothing else about these records was released"
_GAUSSIAN = Citation(key="dong-2019", text="Dong, Roth, Su 2019, Gaussian differential privacy, arXiv:1905.02383, Corollary 3.3")
_MIXED = (
    Citation(key="zhu-2022", text="Zhu, Dong, Wang 2022, Optimal accounting of differential privacy via characteristic function, "
             "arXiv:2106.08567, Theorem 10"),
    Citation(key="mironov-2017", text="Mironov 2017, Rényi differential privacy, arXiv:1702.07476, Proposition 1"),
)  # fmt: skip
TOTAL = "total"
"""The kind of the document of a `Total`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Total(Claims):
    """What several releases from the same records cost together, for one neighbouring relation.

    Formal guarantee: if the parts draw noise of their own, and the guarantee of each was fixed before anything was released, then all
    releases together satisfy `guarantee`. What a part computes may depend on the earlier ones (adaptive composition).

    Args:
        parts: what it is made of; of a total among them, its parts.
        neighbours: the relation, one for all.
        guarantee: of all of them together.
        delta: the delta of (epsilon, delta).
        epsilon: the epsilon; inf means that nothing is protected.
        asked: which of the two was asked for; the other was computed.
        unit: of privacy, one for all parts.
        version: of Lethe.
    """

    parts: tuple[Part, ...]
    neighbours: Neighbours
    guarantee: Guarantee
    delta: float
    epsilon: float
    asked: str = "delta"
    unit: Unit = "record"
    version: str = __version__

    def __repr__(self) -> str:
        return f"Total({self._claim}, {len(self.parts)} parts)"

    def __str__(self) -> str:
        return page_in_few_lines(self.explain().splitlines(), head=1)

    @property
    def _claim(self) -> str:
        delta = shown(self.delta) if self.asked == "epsilon" else f"{self.delta:g}"
        return f"({shown(self.epsilon)}, {delta})-DP, {relation_words(self.neighbours, self.unit)}"

    @property
    def title(self) -> str:
        """What holds of all parts together, in a line."""
        return f"{self._claim}, {_counted(self.parts)} together."

    @property
    def records(self) -> int | None:
        """The largest number of records of a part; None where none says it."""
        return max((part.records for part in self.parts if part.records is not None), default=None)

    @property
    def large_delta(self) -> bool:
        r"""Whether $\delta \ge 1/n$ for the largest n, with which a record may be published whole."""
        return self.records is not None and is_large(self.delta, self.records)

    @property
    def not_private(self) -> str:
        """A line on why nothing is proved; empty where epsilon is finite and delta below 1."""
        if self.epsilon < math.inf and self.delta < 1.0:
            return ""
        why = next((f"{part.name}: {part.not_private}" for part in self.parts if part.not_private), None)
        return why or f"NOT PRIVATE: nothing is proved of all parts together at delta = {self.delta:g}."

    @property
    def written(self) -> tuple[str, ...]:
        """The parts whose guarantee is taken as it is written, since nothing computes it."""
        return tuple(part.name for part in self.parts if not part.computed)

    @property
    def declared(self) -> tuple[str, ...]:
        """Everything it rests on that nothing proves, a line each, with the parts that rest on it."""
        by: dict[str, list[str]] = {}
        for part in self.parts:
            for line in part.declared:
                by.setdefault(line, []).append(part.name)
        same = f"the same records: {SAME_RECORDS}" if self.unit == "record" else f"the same users: {SAME_USERS}"
        return (same, *(f"{', '.join(names)}: {line}" for line, names in by.items()))

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of the composition."""
        return (_GAUSSIAN,) if isinstance(self.guarantee, GDP) else _MIXED

    @property
    def rows(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """A line a part: its name, how many, epsilon alone at the delta, its guarantee, and whether it was computed again."""
        return tuple(
            (
                part.name,
                str(part.count),
                shown(part.guarantee.epsilon(self.delta) if self.delta < 1.0 else 0.0),
                part.guarantee.describe(),
                "computed" if part.computed else "as written",
            )
            for part in self.parts
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known beside the numbers."""
        large = None if self.records is None else large_delta_note(self.delta, self.records)
        if self.records is None:
            large = f"note: no part says of how many records it is: delta = {self.delta:g} needs to be below 1/records."
        return (*([self.not_private] if self.not_private else []), FIXED_BEFORE, *([] if large is None else [large]))

    def explain(self) -> str:
        """The total as text for a person."""
        lines = [f"{self.title:<72}lethe {self.version}"]
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        for name, count, epsilon, guarantee, how in self.rows:
            counted, alone = f"{count:>{widths[1]}} x", f"epsilon {epsilon:>{widths[2]}} alone"
            lines.append(f"    {name:<{widths[0]}}   {counted}   {alone}   {how:<{widths[4]}}   {guarantee}")
        lines += self.notes
        lines += [f"    declared   {line}" for line in self.declared]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The total as plain data, with the documents of its parts."""
        return {
            "kind": TOTAL,
            "epsilon": _plain(self.epsilon),
            "delta": self.delta,
            **({"large_delta": True} if self.large_delta else {}),
            "asked": self.asked,
            "neighbours": self.neighbours,
            **({} if self.unit == "record" else {"unit": self.unit}),
            "parts": [
                {
                    "name": part.name,
                    "count": part.count,
                    "epsilon": _plain(part.guarantee.epsilon(self.delta) if self.delta < 1.0 else 0.0),
                    "computed": part.computed,
                    "document": part.content,
                }
                for part in self.parts
            ],
            "declared": list(self.declared),
            "lethe": self.version,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, source: str | None = None, key: PublicKey | None = None) -> Total:
        """The total of the documents in plain data that `to_dict` wrote: every part is computed again, and so is their composition.

        Args:
            content: plain data.
            source: where it is from, for messages.
            key: whose seals are believed; None: this installation's and its team's.
        Raises:
            InputError: it holds no total, or what it says does not follow from its parts.
        """
        try:
            exactly(
                content, "kind", "epsilon", "delta", "asked", "neighbours", "parts", "declared", "lethe", besides=("large_delta", "unit")
            )
            asked, neighbours, unit = content["asked"], content["neighbours"], content.get("unit", "record")
            known = neighbours in get_args(Neighbours) and unit in get_args(Unit)
            if content["kind"] != TOTAL or asked not in ("delta", "epsilon") or not known:
                raise ValueError("its kind, its relation, its unit or what was asked for is none that is known")
            version, said = read_text(content["lethe"]), {name: float(content[name]) for name in ("epsilon", "delta")}
            if not isinstance(content["parts"], list) or not content["parts"]:
                raise ValueError("it has no parts")
            listed = [_read(part, neighbours, unit, key) for part in content["parts"]]
        except InputError as error:
            raise InputError(f"total: {error.what}", source=source or error.source, remedy=error.remedy) from error
        except UNREADABLE as error:
            remedy = "give a file written by `lethe total -o` or Total.save."
            raise no_such_document(TOTAL, error, source, remedy) from error
        found = composed(listed, neighbours, {asked: said[asked]}, unit=unit, allow_large_delta=True)
        for name in ("epsilon", "delta"):
            proved = float(getattr(found, name))
            if not math.isclose(proved, said[name], rel_tol=1e-6, abs_tol=1e-15):
                raise InputError(
                    f"this total does not follow from its parts: it claims {name} = {said[name]:g}; together they have {proved:g}.",
                    source=source or f"written by lethe {version}, read by lethe {__version__}",
                    remedy="do not rely on it; add the parts again.",
                )
        return found


def _read(part: dict[str, Any], neighbours: Neighbours, unit: Unit, key: PublicKey | None) -> tuple[Part, Neighbours]:
    exactly(part, "name", "count", "epsilon", "computed", "document")
    count = require_count("count", part["count"], high=MOST_TIMES)
    if not isinstance(part["document"], dict):
        raise ValueError("the document of a part is no mapping")
    return part_of(part["document"], name=read_text(part["name"]), count=count, neighbours=neighbours, unit=unit, key=key)


def composed(
    listed: Sequence[tuple[Part, Neighbours]],
    neighbours: Neighbours | None,
    wanted: dict[str, Any],
    *,
    unit: Unit | None = None,
    allow_large_delta: bool,
) -> Total:
    """The total of parts, at the delta or epsilon `wanted`, about the relation and unit asked for (None: those of the parts)."""
    parts = [part for part, _ in listed]
    relations, units = dict[Neighbours, list[str]](), dict[Unit, list[str]]()
    for part, about in listed:
        relations.setdefault(about, []).append(part.name)
        units.setdefault(part.unit, []).append(part.name)
    relation = _only(relations, neighbours, "neighbours", str, "certify all of them for one relation.")
    of_users = "certify all of them for users, or all for records; of numbers that are about users, say so: unit='user' (--unit user)."
    about_one = _only(units, unit, "units of privacy", lambda word: NOUNS[word][1], of_users)
    refuse_repeated(parts)
    records = max((part.records for part in parts if part.records is not None), default=None)
    # One order, so that rounding does not depend on how they were listed.
    ordered = sorted(((part.guarantee, part.count) for part in parts), key=lambda pair: (digest(pair[0].to_dict()), pair[1]))
    guarantee = joined(ordered)
    if "delta" in wanted:
        known = wanted["delta"]
        level = open_delta(known) if records is None else delta_for(records, known, allow_large_delta=allow_large_delta)
        found, asked = guarantee.epsilon(level), "delta"
    else:
        found, asked = require_nonnegative("epsilon", wanted["epsilon"], allow_infinity=False), "epsilon"
        level = guarantee.delta(found)
    return Total(parts=tuple(parts), delta=level, epsilon=found, neighbours=relation, unit=about_one, guarantee=guarantee, asked=asked)


def _only(by: dict[Any, list[str]], wanted: str | None, what: str, noun: Callable[[Any], str], remedy: str) -> Any:
    """The one word that all parts are about, and what was asked for."""
    if wanted is not None:
        by = {wanted: ["what was asked for", *by.pop(wanted, [])], **by}
    if len(by) > 1:
        said = "; ".join(f"{', '.join(names)}: {noun(word)}" for word, names in by.items())
        raise InputError(f"the parts are about different {what}, and such epsilons do not add up ({said}).", remedy=remedy)
    return next(iter(by))


def _counted(parts: Sequence[Part]) -> str:
    number = sum(part.count for part in parts)
    return f"{number} release{'' if number == 1 else 's'}"


def _plain(value: float) -> float | str:
    return "inf" if value == math.inf else value

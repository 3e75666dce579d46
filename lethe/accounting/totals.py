"""total: add up what several releases from the same records cost together, and what that rests on.

`lethe.total` and the command line call it with certificates, statements, guarantees or files of them, and a delta.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from lethe.accounting.parts import MOST_TIMES, Part, digest, part_of, refuse_repeated
from lethe.calculus.any_guarantee import joined
from lethe.calculus.domains import outside, require_count, require_nonnegative
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.large_delta import delta_for, is_large, large_delta_note, open_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.claims import UNREADABLE, Claims, no_such_document
from lethe.certificates.keys import PublicKey
from lethe.certificates.parts import Citation, exactly, read_text, relation_words
from lethe.documents.shortened import page_in_few_lines
from lethe.documents.strict import read_document
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.run.participation import NOUNS, Unit
from lethe.run.run import Neighbours

FIXED_BEFORE = (
    "holds if the guarantee of every part was fixed before anything was released; what a part computed may depend on earlier releases. "
    "Not covered: parts, noise or a number of parts chosen after looking at a release; that needs a privacy filter."
)
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
        number = sum(part.count for part in self.parts)
        return f"{self._claim}, {number} release{'' if number == 1 else 's'} together."

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
        unit_noun, many = NOUNS[self.unit]
        same = f"the same {many}: one person is one {unit_noun}, the same in every part, and nothing else about these {many} was released"
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
                shown(self._epsilon_of(part)),
                part.guarantee.describe(),
                "computed" if part.computed else "as written",
            )
            for part in self.parts
        )

    def _epsilon_of(self, part: Part) -> float:
        """What one part costs by itself, at the total's delta."""
        return part.guarantee.epsilon(self.delta) if self.delta < 1.0 else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known beside the numbers."""
        large = f"note: no part says of how many records it is: delta = {self.delta:g} needs to be below 1/records."
        if self.records is not None:
            large = large_delta_note(self.delta, self.records)
        return tuple(filter(None, (self.not_private, FIXED_BEFORE, large)))

    def explain(self) -> str:
        """The total as text for a person."""
        lines = [f"{self.title:<72}lethe {self.version}"]
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        for name, count, epsilon, guarantee, how in self.rows:
            counted, epsilon_column = f"{count:>{widths[1]}} x", f"epsilon {epsilon:>{widths[2]}} alone"
            lines.append(f"    {name:<{widths[0]}}   {counted}   {epsilon_column}   {how:<{widths[4]}}   {guarantee}")
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
                    "epsilon": _plain(self._epsilon_of(part)),
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

        `source` is where `content` is from, for messages; `key` whose seals are believed, None: this installation's and its team's.

        Raises:
            InputError: it holds no total, or what it says does not follow from its parts.
        """
        try:
            exactly(
                content, "kind", "epsilon", "delta", "asked", "neighbours", "parts", "declared", "lethe", besides=("large_delta", "unit")
            )
            target_name, neighbours, unit = content["asked"], content["neighbours"], content.get("unit", "record")
            is_known = neighbours in get_args(Neighbours) and unit in get_args(Unit)
            if content["kind"] != TOTAL or target_name not in ("delta", "epsilon") or not is_known:
                raise ValueError("its kind, its relation, its unit or what was asked for is none that is known")
            version, claimed = read_text(content["lethe"]), {name: float(content[name]) for name in ("epsilon", "delta")}
            if not isinstance(content["parts"], list) or not content["parts"]:
                raise ValueError("it has no parts")
            listed = [_read(part, neighbours, unit, key) for part in content["parts"]]
        except InputError as error:
            raise InputError(f"total: {error.what}", source=source or error.source, remedy=error.remedy) from error
        except UNREADABLE as error:  # content of another shape than a total's
            remedy = "give a file written by `lethe total -o` or Total.save."
            raise no_such_document(TOTAL, error, source, remedy) from error
        recomposed = _composed(listed, neighbours, {target_name: claimed[target_name]}, unit=unit, allow_large_delta=True)
        for name in ("epsilon", "delta"):
            proved = float(getattr(recomposed, name))
            if not math.isclose(proved, claimed[name], rel_tol=1e-6, abs_tol=1e-15):
                raise InputError(
                    f"this total does not follow from its parts: it claims {name} = {claimed[name]:g}; together they have {proved:g}.",
                    source=source or f"written by lethe {version}, read by lethe {__version__}",
                    remedy="do not rely on it; add the parts again.",
                )
        return recomposed


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def total(
    parts: Sequence[object],
    delta: float | None = None,
    *,
    epsilon: float | None = None,
    neighbours: Neighbours | None = None,
    unit: Unit | None = None,
    key: PublicKey | str | os.PathLike[str] | None = None,
    allow_large_delta: bool = False,
) -> Total:
    """What several releases from the same records cost together.

    Each certificate and statement is computed again first, as by `verify`, and what does not follow is refused. Refused by name are parts
    of different neighbouring relations or units of privacy, numbers that say no relation, and a release that is there twice.

    Args:
        parts: certificates, statements, totals, guarantees, dp_accounting events, or files of them; for several independent releases of
            one kind a pair (certificate, N).
        delta: in (0, 1), and below 1/records of every part; or
        epsilon: >= 0 in its place, and the delta is computed.
        neighbours: the relation of guarantees and events, which say none; also a check of all others.
        unit: "record" or "user": of guarantees and events, which say none, "record" where it is left out; also a check of all others.
        key: the public key, or its PEM file, of the one whose seals are believed; None: this installation's and its team's.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    Returns:
        A total, whose guarantee is as small as the calculus of `lethe.calculus.any_guarantee.together` makes it.
    Raises:
        InputError: a part cannot be added, or an argument is out of its range.
    Reference: Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10 (adaptive composition of fixed guarantees).

    Examples:
        >>> round(
        ...     lethe.total([lethe.guarantees.GDP(0.3), lethe.guarantees.GDP(0.4)], delta=1e-5,
        ...     neighbours='replace_one').epsilon, 2)
        1.99
    """
    if not isinstance(parts, list | tuple) or not parts:
        raise outside("parts", parts, "a list of at least one certificate, statement, total, guarantee, event or file")
    if (delta is None) == (epsilon is None):
        raise InputError("delta and epsilon: a total needs one of the two.", remedy="give delta=1e-5, or epsilon=1 for the delta at it.")
    for name, word, words in (("neighbours", neighbours, get_args(Neighbours)), ("unit", unit, get_args(Unit))):
        if word is not None and word not in words:
            raise outside(name, word, "one of " + ", ".join(words))
    believed = key if key is None or isinstance(key, PublicKey) else PublicKey.load(key)
    listed = [part for item in parts for part in _parts_of(item, neighbours, unit, believed)]
    target = {"delta": delta} if epsilon is None else {"epsilon": epsilon}
    return _composed(listed, neighbours, target, unit=unit, allow_large_delta=allow_large_delta)


def _parts_of(item: object, neighbours: Neighbours | None, unit: Unit | None, key: PublicKey | None) -> list[tuple[Part, Neighbours]]:
    count = 1
    if isinstance(item, tuple):
        if len(item) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise outside("parts", item, "pairs of a part and how many releases like it there are")
        item, count = item[0], require_count("the number of releases", item[1], high=MOST_TIMES)  # pyright: ignore[reportUnknownVariableType]
    name = ""
    if isinstance(item, str | os.PathLike):
        name = os.fspath(item)
        content = read_document(item)
        if content.get("kind") != TOTAL:
            return [part_of(content, name=name, count=count, neighbours=neighbours, unit=unit, key=key, one_release=True)]
        item = Total.from_dict(content, source=name, key=key)
    if isinstance(item, Total):
        # What was written into the object may not be what its parts have.
        read_total = Total.from_dict(item.to_dict(), source=name or None, key=key)
        parts = [replace(part, count=part.count * count) for part in read_total.parts]
        if name:  # a number of no particular release is one of the file that it is in
            parts = [
                replace(part, name=f"{name}: {part.name}", releases=part.releases or frozenset([digest([name, index])]))
                for index, part in enumerate(parts)
            ]
        return [(part, read_total.neighbours) for part in parts]
    return [part_of(item, name=name, count=count, neighbours=neighbours, unit=unit, key=key)]


def _read(part: dict[str, Any], neighbours: Neighbours, unit: Unit, key: PublicKey | None) -> tuple[Part, Neighbours]:
    exactly(part, "name", "count", "epsilon", "computed", "document")
    count = require_count("count", part["count"], high=MOST_TIMES)
    if not isinstance(part["document"], dict):
        raise ValueError("the document of a part is no mapping")
    return part_of(part["document"], name=read_text(part["name"]), count=count, neighbours=neighbours, unit=unit, key=key)


def _composed(
    listed: Sequence[tuple[Part, Neighbours]],
    neighbours: Neighbours | None,
    target: dict[str, Any],
    *,
    unit: Unit | None = None,
    allow_large_delta: bool,
) -> Total:
    """The total of parts, at the delta or epsilon `target`, about the relation and unit asked for (None: those of the parts)."""
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
    if "delta" in target:
        target_delta = target["delta"]
        level = open_delta(target_delta) if records is None else delta_for(records, target_delta, allow_large_delta=allow_large_delta)
        reached, target_name = guarantee.epsilon(level), "delta"
    else:
        reached, target_name = require_nonnegative("epsilon", target["epsilon"], allow_infinity=False), "epsilon"
        level = guarantee.delta(reached)
    return Total(
        parts=tuple(parts), delta=level, epsilon=reached, neighbours=relation, unit=about_one, guarantee=guarantee, asked=target_name
    )


def _only(by: dict[Any, list[str]], required: str | None, what: str, noun: Callable[[Any], str], remedy: str) -> Any:
    """The one word that all parts are about, and what was asked for."""
    if required is not None:
        by = {required: ["what was asked for", *by.pop(required, [])], **by}
    if len(by) > 1:
        groups = "; ".join(f"{', '.join(names)}: {noun(word)}" for word, names in by.items())
        raise InputError(f"the parts are about different {what}, and such epsilons do not add up ({groups}).", remedy=remedy)
    return next(iter(by))


def _plain(value: float) -> float | str:
    return "inf" if value == math.inf else value

"""Derivation: the numbers of a mechanism that its guarantee follows from, so that whoever reads a file can compute it again.

Mechanisms and estimators attach one to each `Statement`; `lethe.accounting.recheck` computes the guarantee from it again, so that a file
cannot claim an epsilon that its numbers do not give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.certificates.parts import exactly, read_text
from lethe.documents.strict import to_json


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a guarantee is computed: by which rule of `lethe.accounting.derivations`, from which numbers.

    Args:
        kind: the rule, such as "objective perturbation".
        text: its numbers, as one line of JSON; `derivation` writes it.
        parts: the statements that it is composed of; none where it is one release.
    """

    kind: str
    text: str
    parts: tuple[Any, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """Its numbers by name."""
        return json.loads(self.text)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        listed = {"parts": [part.to_dict() for part in self.parts]} if self.parts else {}
        return {"kind": self.kind, "parameters": self.parameters, **listed}

    @classmethod
    def from_dict(cls, content: dict[str, Any], read_part: Any) -> Derivation:
        """What `to_dict` wrote; `read_part` reads a statement."""
        exactly(content, "kind", "parameters", besides=("parts",))
        if not isinstance(content["parameters"], Mapping):
            raise TypeError("the parameters of a mechanism are no mapping")
        parts = tuple(read_part(part) for part in content.get("parts", []))
        return cls(read_text(content["kind"]), _line(dict(content["parameters"])), parts)


def derivation(kind: str, *parts: Any, **parameters: Any) -> Derivation:
    """A derivation by this rule, of these statements, with parameters as JSON has them."""
    return Derivation(kind, _line(parameters), parts)


def derivation_lines(stated: Any) -> list[str]:
    """From which numbers the guarantee follows, a line for each release it is made of."""
    derivation = stated.derivation
    if derivation is None:
        return [f"by nothing: {stated.guarantee.describe()} is taken as it is written"]
    numbers = derivation.parameters
    counts = numbers.pop("counts", [1] * len(derivation.parts))
    arguments = ", ".join(f"{name} = {_short(value)}" for name, value in numbers.items())
    lines = [derivation.kind + (f": {arguments}" if arguments else "") + (" of" if derivation.parts else "")]
    for part, count in zip(derivation.parts, counts, strict=False):
        first, *more = derivation_lines(part)
        lines += [f"    {f'{count} x ' if count != 1 else ''}{part.name}, by {first}", *(f"    {line}" for line in more)]
    return lines


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return " ".join(str(value[key]) if index == 0 else f"{key} {_short(value[key])}" for index, key in enumerate(value))
    text = value if isinstance(value, str) else to_json(value, indent=None).strip()
    return text if len(text) <= 200 else f"{text[:197]}..."


def _line(parameters: dict[str, Any]) -> str:
    return to_json(dict(sorted(parameters.items())), indent=None).strip()

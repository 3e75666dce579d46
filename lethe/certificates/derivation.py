"""Derivation: the numbers of a mechanism that its guarantee follows from, so that whoever reads a file can compute it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.certificates.parts import exactly, read_text
from lethe.documents.strict import to_json


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a guarantee is computed: by which rule of `lethe.accounting.statements.derivations`, from which numbers.

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
    """A derivation.

    Args:
        kind: the rule.
        parts: statements that it is composed of.
        parameters: numbers, text, lists and mappings, as JSON has them.
    """
    return Derivation(kind, _line(parameters), parts)


def _line(parameters: dict[str, Any]) -> str:
    return to_json(dict(sorted(parameters.items())), indent=None).strip()

"""Guarantee and Profile: the interface of all guarantees, with an exact JSON form."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import ClassVar, cast

from lethe.calculus import conversions


class Guarantee(ABC):
    r"""A privacy guarantee: an upper bound on the privacy profile $\delta(\epsilon)$ of a mechanism for one neighbouring relation.

    Formal guarantee: whenever `epsilon(delta)` returns a number, the mechanism is (that number, delta)-DP; whenever `delta(epsilon)`
    does, it is (epsilon, that number)-DP. Both are rounded up. Infinity is an answer; nan never is.
    """

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        r"""Smallest $\epsilon \in [0, \infty]$ this guarantee proves at $\delta \in [0, 1)$; InputError outside that range."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        r"""Smallest $\delta \in [0, 1]$ this guarantee proves at $\epsilon \in [0, \infty]$; InputError outside that range."""

    def tradeoff(self, type_one: float) -> float:
        r"""The trade-off function at $\alpha \in [0, 1]$, from below: see `conversions.profile_tradeoff`."""
        return conversions.profile_tradeoff(self.delta, type_one)

    @abstractmethod
    def describe(self) -> str:
        """A few words for people, such as `0.2442-GDP`."""

    def to_dict(self) -> dict[str, object]:
        """The guarantee as a JSON-safe dictionary, exact: `guarantee_from_dict` gives back an equal one. Infinity is the text "inf"."""
        return {"kind": self.kind} | {name: encode(cast(object, getattr(self, name))) for name in stored_fields(type(self))}


def stored_fields(kind: type[Guarantee]) -> tuple[str, ...]:
    """Names of the fields that make a guarantee: those its constructor takes."""
    return tuple(entry.name for entry in fields(kind) if entry.init)  # pyright: ignore[reportArgumentType]


def encode(value: object) -> object:
    """A field's value in JSON: guarantees become dictionaries, tuples lists, infinity the text "inf"."""
    if isinstance(value, Guarantee):
        return value.to_dict()
    if isinstance(value, tuple):
        return [encode(entry) for entry in cast("tuple[object, ...]", value)]
    return "inf" if value == math.inf else value


def freeze(guarantee: Guarantee, **values: object) -> None:
    """Store checked values in a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(guarantee, name, value)


class Profile(Guarantee):
    r"""A guarantee known through its privacy profile: a subclass gives a nonincreasing `delta`, and `epsilon` is solved from it."""

    __slots__ = ()

    def epsilon(self, delta: float) -> float:
        """See `conversions.profile_epsilon`."""
        return conversions.profile_epsilon(self.delta, delta)

"""The page docs/theorems.md, written from the registry: `python -m lethe.report.theorems_page > docs/theorems.md`."""

from __future__ import annotations

from collections.abc import Iterable

from lethe.theorems.base import Theorem
from lethe.theorems.registry import LITERATURE, OURS

_RELEASES = {"last": "the last iterate", "all": "every iterate"}
_HEAD = """# Theorems

<!-- Written by `python -m lethe.report.theorems_page`; a test compares it with the registry. -->

`certify` and `plan` try the first group and keep the smallest epsilon. `certify --all` and `compare` try both. The epsilon of a Gaussian
guarantee is exact (Balle & Wang 2018, Theorem 8), not a detour through Rényi divergence.

In the formulas $s$ is how far one touch moves the iterate ($2\\lambda G/b$ when a record is replaced, $\\lambda G/b$ when it is zeroed out,
added or removed), $\\tau$ the standard deviation of a step's noise in parameter units, $\\ell$ the steps of a pass, $E$ the passes, $T$ the
steps.
"""
_STANDINGS = """
What a published bound may be good for:

- *sound*: it holds as stated here. *dominated*: it holds, and another theorem here is never worse.
- *refuted*: it is false; a test has the counter-example. *one-sided*: it bounds one direction of the divergence only. *proof-gap*: the
  published proof does not cover it. *lower-bound*: no run of this kind can be more private; it certifies nothing.

Only sound and dominated ones can ever carry a certificate.
"""


def theorems_page() -> str:
    """The whole page, as Markdown."""
    parts = [
        _HEAD,
        "\n## Lethe's own\n",
        _table(OURS),
        "\n## Published bounds\n",
        _STANDINGS,
        "\n",
        _table(LITERATURE),
        "\n## Each in turn\n",
    ]
    return "".join([*parts, *(_section(theorem) for theorem in (*OURS, *LITERATURE))])


def _table(theorems: Iterable[Theorem]) -> str:
    rows = [
        f"| `{theorem.name}` | {_RELEASES[theorem.covers]} | {theorem.standing.soundness} | {theorem.needs} |\n" for theorem in theorems
    ]
    return "".join(["\n| name | holds for | standing | needs |\n|---|---|---|---|\n", *rows])


def _section(theorem: Theorem) -> str:
    why = f" Standing: {theorem.standing.soundness}: {theorem.standing.why}." if theorem.standing.why else ""
    sources = "".join(f"- {citation.text}\n" for citation in theorem.citations)
    return f"\n### `{theorem.name}`\n\n{theorem.statement}{why}\n\n$${theorem.formula}$$\n\n{sources}"


if __name__ == "__main__":
    print(theorems_page(), end="")

"""The tables and sections of the page docs/theorems.md, written from the registry while the site is built."""

from __future__ import annotations

from collections.abc import Iterable

from lethe.theorems.base import Theorem
from lethe.theorems.registry import LITERATURE, OURS

_RELEASES = {"last": "the last iterate", "all": "every iterate"}
_HEAD = r"""`certify` and `plan` try the first group and keep the smallest epsilon. `certify --all` and `compare` try both. The epsilon of a
Gaussian guarantee is exact (Balle & Wang 2018, Theorem 8), not a detour through Rényi divergence.

In the formulas $T$ is the number of steps, $\ell$ the steps of a pass, $E$ the passes, $n$ the records, $b$ the batch size, $q =
b/n$; $\lambda$ or $\eta$ the step size, $C$ the clip norm or the bound on one record's gradient, also written $G$, $L$ or $Q$; $\tau$
the standard deviation of a step's noise in parameter units, also written $\sigma$ by Kong and Ribero, while $\sigma = \tau/\lambda$
elsewhere; $z = \tau b/(\lambda C)$; $s$ how far one touch moves the iterate ($2\lambda C/b$ when a record is replaced, $\lambda C/b$
when it is zeroed out, added or removed); $m$ and $M$ bound the curvature, $-m \le f'' \le M$; $D$ or $d_h$ is the diameter of the
domain; $L_t$ or $c$ the Lipschitz constant of a step, $L_\lambda = \sqrt{1 + 2\lambda m(1 + m/(2(M+m)))}$; $\theta_L(\ell) =
L^{2(\ell-1)}/\sum_{j<\ell}L^{2j}$; $S_\alpha(q, z)$ the Rényi divergence of one sampled Gaussian step with noise $z$; $C_q(f)$ the
trade-off function of a subsampled $f$; $\beta$ the share of a noise that hides the draw.
"""
_STANDINGS = """
What a published bound may be good for:

- *sound*: it holds as stated here. *dominated*: it holds, and another theorem here is never worse.
- *refuted*: it is false; a test has the counter-example. *one-sided*: it bounds one direction of the divergence only. *proof-gap*: the
  published proof does not cover it. *lower-bound*: no run of this kind can be more private; it certifies nothing.

Only sound and dominated ones can ever carry a certificate. "By run" means that
it depends on the run, such as on whether clipping acts: `compare` says which it is.
"""


def theorems_page() -> str:
    """All that stands below the page's title, as Markdown."""
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
    rows = [f"| `{theorem.name}` | {_RELEASES[theorem.covers]} | {_standing(theorem)} | {theorem.needs} |\n" for theorem in theorems]
    return "".join(["\n| name | holds for | standing | needs |\n|---|---|---|---|\n", *rows])


def _standing(theorem: Theorem) -> str:
    varies = type(theorem).standing_on is not Theorem.standing_on
    return f"{theorem.standing.soundness}, by run" if varies else theorem.standing.soundness


def _section(theorem: Theorem) -> str:
    why = f" Standing: {_standing(theorem)}: {theorem.standing.why}." if theorem.standing.why else ""
    sources = "".join(f"- {citation.text}\n" for citation in theorem.citations)
    return f"\n### `{theorem.name}`\n\n{theorem.statement}{why}\n\n$${theorem.formula}$$\n\n{sources}"

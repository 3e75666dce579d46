"""What every estimator shares: who has it, where its parameters are described, and what a fit says of its privacy."""

import math
from typing import Self

import pytest

from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.estimators.private_estimator import PrivateEstimator


def part(name: str, mu: float) -> Statement:
    finding = holds("sensitivity", f"of {name}", evidence="enforced")
    return Statement(name=name, guarantee=GDP(mu), neighbours="replace_one", findings=(finding,), citations=())


class Releases(PrivateEstimator):
    """Releases nothing, and says what it is told to."""

    def fit(self, parts: list[Statement], total: Statement | None = None) -> Self:
        budget, chance = self._budget(100), self._randomness(100)
        assert (chance.norm is None) == (not self.seed_noise)
        self._state(parts, budget, 100, why=["a reason"], public=["a fact"], total=total)
        return self


def test_parts_compose_unless_their_total_is_known() -> None:
    parts = [part("one", 0.3), part("two", 0.4)]
    together = Releases(delta=1e-4).fit(parts)
    assert together.certificate_ is together.statement_
    assert (together.statement_.name, together.delta_) == ("one; two", 1e-4)
    assert together.epsilon_ == together.statement_.epsilon(1e-4) == pytest.approx(GDP(0.5).epsilon(1e-4), rel=1e-12)
    assert Releases().fit(parts[:1]).statement_ == parts[0]
    apart = Releases().fit(parts, part("the worse of the two", 0.4))
    assert apart.statement_ == part("the worse of the two", 0.4)
    for line in ("one: epsilon", "two: epsilon", "a reason", "a fact", "100, is public"):
        assert line in apart.privacy_report_
    assert apart.delta_ == 1e-5


def test_seeded_noise_is_no_release() -> None:
    plain, seeded = (Releases(random_state=1, seed_noise=seed).fit([part("one", 0.3)]) for seed in (False, True))
    assert [finding.evidence for finding in plain.statement_.findings] == ["enforced"]
    assert [(finding.name, finding.status) for finding in seeded.statement_.findings] == [
        ("sensitivity", "holds"),
        ("fresh noise", "fails"),
    ]
    assert seeded.epsilon_ == math.inf > seeded.statement_.planned.epsilon(seeded.delta_) == plain.epsilon_
    assert (plain.__sklearn_tags__().non_deterministic, seeded.__sklearn_tags__().non_deterministic) == (True, False)

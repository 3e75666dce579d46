"""What every estimator shares: who has it, where its parameters are described, and what a fit says of its privacy."""

import inspect
import math
import re
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import lethe.estimators
from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.private_estimator import PrivateEstimator

PUBLIC = [
    kind
    for name in lethe.estimators.__all__
    if inspect.isclass(kind := getattr(lethe.estimators, name)) and issubclass(kind, BaseEstimator)
]


def described(kind: type) -> set[str]:
    """The parameters that a docstring explains itself, under Args; not those that it says are as another class has them."""
    doc = inspect.getdoc(kind) or ""
    arguments = doc.partition("Args:\n")[2].partition("\nAttributes:")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*): ((?:.|\n(?!    \w))*)", arguments, flags=re.MULTILINE)
    return {name for names, text in entries if not text.startswith("as `") for name in names.split(", ")}


@pytest.mark.parametrize("kind", PUBLIC)
def test_docstrings_lead_from_each_estimator_to_a_description_of_every_parameter(kind: Any) -> None:
    """No reader has to know which class derives from which: a docstring names the next one."""
    assert issubclass(kind, PrivateEstimator) != (kind is lethe.estimators.PublicScaler)  # which releases nothing
    derived_from = {one.__name__: one for one in inspect.getmro(kind)}
    found, names, seen = set[str](), [kind.__name__], set[str]()
    while names:
        seen.add(name := names.pop())
        found |= described(derived_from[name])
        linked = re.findall(r"`(\w+)`", inspect.getdoc(derived_from[name]) or "")
        names += [one for one in linked if one in derived_from and one not in seen]
    assert set(kind._get_param_names()) - found == set()


def part(name: str, mu: float) -> Statement:
    finding = holds("sensitivity", f"of {name}", evidence="enforced")
    return Statement(name=name, guarantee=GDP(mu), neighbours="replace_one", findings=(finding,), citations=())


class Releases(PrivateEstimator):
    """Releases nothing, and says what it is told to."""

    switched = True

    def fit(self, parts: list[Statement], total: Statement | None = None) -> Self:
        budget, chance = self._budget(100), self._randomness(100)
        assert self._switch("switched")
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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"neighbours": "add_or_remove"}, "neighbours"),
        ({"neighbours": None}, "neighbours"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"seed_noise": True}, "without a random_state"),
        ({"seed_noise": 1}, "seed_noise = 1; it needs True or False"),
    ],
)
def test_what_is_wrong_is_refused_in_fit_and_not_before(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Releases(**wrong).fit([part("one", 0.3)])


@pytest.mark.parametrize(("value", "fine"), [(True, True), (np.True_, True), (1, False), ("yes", False), (None, False)])
def test_a_switch_is_true_or_false(value: Any, fine: bool) -> None:
    model = Releases()
    model.switched = value
    if fine:
        assert model._switch("switched") is True
    else:
        with pytest.raises(InputError, match=r"switched = .*; it needs True or False"):
            model._switch("switched")

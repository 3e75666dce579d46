"""What solvers reveal of one record, exactly: gradients that do not depend on the parameters make a transcript Gaussian."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from lethe.calculus.guarantees import GDP
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.coordinate_wise import SmoothedMean
from lethe.heavy_tailed.localisation.descent import localised, strongly_convex
from lethe.heavy_tailed.localisation.plans import localised_practical
from lethe.heavy_tailed.localisation.population import population_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, MeanOracle
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Release, Solution
from lethe.run.regularisers import L1

RHO = 0.35
COUNT = 23
PROBLEM = Problem(
    gradient=lambda parameters, records: np.asarray(records, dtype=np.float64),
    dimension=3,
    domain=BallDomain(radius=1.0),
    smoothness=2.0,
    strong_convexity=0.5,
    pl_constant=0.5,
    moments=Moments(order=4, bound=2.0, kind="uniform"),
)


Gaussian = ClippedMean | CoordinateMedian | SmoothedMean


@dataclass(frozen=True)
class Watched(MeanOracle):
    """An oracle whose noiseless means and noise are written down."""

    inner: Gaussian
    means: list[tuple[Array, float]] = field(default_factory=list)

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        quiet = replace(self.inner, rho=math.inf)
        self.means.append((quiet.mean(rows, generator), self.inner.release(*rows.shape).noise_std))
        return self.inner.mean(rows, generator)

    def release(self, size: int, dimension: int) -> Release:
        return self.inner.release(size, dimension)

    def shared(self, touches: int) -> "Watched":
        return Watched(self.inner.shared(touches), self.means)


SOLVERS: dict[str, Callable[[Array, MeanOracle], Solution]] = {
    "multi-pass": lambda rows, oracle: multi_pass(PROBLEM, rows, oracle=oracle, passes=4),
    "multi-pass, batches": lambda rows, oracle: multi_pass(PROBLEM, rows, oracle=oracle, passes=3, batch_size=5),
    "one-pass": lambda rows, oracle: one_pass(PROBLEM, rows, oracle=oracle, steps=4),
    "accelerated": lambda rows, oracle: accelerated(PROBLEM, rows, oracle=oracle, steps=5, step=4.0),
    "proximal": lambda rows, oracle: proximal(PROBLEM, rows, oracle=oracle, steps=3, regulariser=L1(strength=0.1)),
}


ORACLES: list[Gaussian] = [
    ClippedMean(clip_norm=1.5, rho=RHO),
    CoordinateMedian(threshold=1.5, groups=3, rho=RHO),
    SmoothedMean(scale=1.5, precision=5.0, rho=RHO),
]


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("name", SOLVERS)
def test_no_record_is_revealed_more_than_stated(name: str, oracle: Gaussian) -> None:
    """The transcript of a run is N(means, noise^2): exactly GDP with mu^2 = sum |difference of means|^2 / noise^2."""
    rng = np.random.default_rng(0)
    worst, stated = 0.0, 0.0
    for place in range(COUNT):
        rows = rng.standard_normal((COUNT, 3))
        direction = rng.standard_normal(3) if place % 2 else np.ones(3)
        transcripts = []
        for value in (1e9, -1e9):
            rows = rows.copy()
            rows[place] = value * direction
            watched = Watched(oracle)
            done = SOLVERS[name](rows, watched)
            transcripts.append(watched.means)
        squares = [float(((a - b) ** 2).sum()) / noise**2 for (a, noise), (b, _) in zip(*transcripts, strict=True)]
        assert isinstance(done.fresh.guarantee, GDP)
        assert math.sqrt(math.fsum(squares)) <= done.fresh.guarantee.mu * (1 + 1e-9)
        assert sum(square > 0 for square in squares) <= done.phases[0].touches
        worst, stated = max(worst, math.fsum(squares)), done.fresh.guarantee.mu
    assert 0.0 < stated <= math.sqrt(2 * RHO) * (1 + 1e-12)
    if isinstance(oracle, ClippedMean):
        assert worst == pytest.approx(2 * RHO, rel=1e-9)  # attained: not looser than it must be


@pytest.mark.parametrize("name", ["localised", "strongly convex", "population"])
def test_no_record_is_revealed_more_than_stated_by_phases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """These make their own oracles; the means are caught where they are taken."""
    caught: list[tuple[Array, float]] = []
    plain = ClippedMean.mean

    def mean(self: ClippedMean, rows: Array, generator: np.random.Generator) -> Array:
        caught.append((plain(replace(self, rho=math.inf), rows, generator), self.release(*rows.shape).noise_std))
        return plain(self, rows, generator)

    monkeypatch.setattr(ClippedMean, "mean", mean)
    schedule = localised_practical(PROBLEM, COUNT, RHO, most_steps=4)
    rng = np.random.default_rng(1)
    for place in range(COUNT):
        rows = rng.standard_normal((COUNT, 3))
        transcripts = []
        for value in (1e9, -1e9):
            rows[place] = value
            caught.clear()
            if name == "localised":
                done = localised(PROBLEM, rows, schedule=schedule, rho=RHO)
            elif name == "population":
                done = population_localised(PROBLEM, rows, schedule=schedule, oracle=ClippedMean(clip_norm=9.0, rho=RHO), parts=1)
            else:
                done = strongly_convex(PROBLEM, rows, rho=RHO, most_steps=4)
            transcripts.append(list(caught))
        squares = [float(((a - b) ** 2).sum()) / noise**2 for (a, noise), (b, _) in zip(*transcripts, strict=True)]
        assert isinstance(done.fresh.guarantee, GDP)
        assert math.fsum(squares) <= done.fresh.guarantee.mu**2 * (1 + 1e-9)
        assert done.fresh.guarantee.mu == pytest.approx(math.sqrt(2 * RHO), rel=1e-12)
        if place < done.phases[0].stop:
            assert math.fsum(squares) == pytest.approx(2 * RHO, rel=1e-9)


@pytest.mark.parametrize(("count", "dimension"), [(6, 3), (7, 1), (16, 3), (31, 1)])
@pytest.mark.parametrize("name", SOLVERS)
def test_any_number_of_records_all_zero_gradients_and_one_dimension(
    name: str, count: int, dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PROBLEM", replace(PROBLEM, dimension=dimension))
    done = SOLVERS[name](np.zeros((count, dimension)), ClippedMean(clip_norm=1.0, rho=RHO))
    assert done.parameters.shape == (dimension,)
    assert np.isfinite(done.parameters).all()
    assert np.linalg.norm(done.parameters) <= 1.0 + 1e-9
    assert done.phases[-1].stop <= count
    assert done.method


def test_the_example_on_the_page_runs_and_is_as_private_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "solvers.md").read_text()
    example, by_module = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names: dict[str, Any] = {}
    exec(compile(example, "solvers.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "1-GDP" in printed
    assert float(printed.split()[-1]) == pytest.approx(4.378, abs=1e-3)
    assert all(f"`{name}" in page for name in ("multi_pass", "one_pass", "accelerated", "proximal", "localised", "strongly_convex"))
    pytest.importorskip("torch")
    exec(compile(by_module, "solvers.md", "exec"), names)  # a constant more than the example
    assert names["model"].weight.detach().numpy()[0] == pytest.approx(names["solution"].parameters, abs=0.2)


def test_every_test_that_the_corrections_name_exists_once() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "benchmarks" / "measurements" / "solvers.md").read_text())
    defined = [name for file in ROOT.glob("tests/**/test_*.py") for name in re.findall(r"^def (test_\w+)\(", file.read_text(), flags=re.M)]
    assert len(set(named)) > 30
    assert {name: defined.count(name) for name in named} == dict.fromkeys(named, 1)

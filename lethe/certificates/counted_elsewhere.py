"""Planning and certifying for those who stand below: training names neither, and an engine tells what was spent all the same.

Both are done above, in `lethe.accounting`, and nothing here may know of it: `import lethe` tells who counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lethe.certificates.certificate import Certificate
from lethe.errors import LetheError
from lethe.run.run import Run


class _Counters(NamedTuple):
    plan: Callable[..., Run]
    certify: Callable[..., Certificate]


_counters: list[_Counters] = []


def counted_by(*, plan: Callable[..., Run], certify: Callable[..., Certificate]) -> None:
    """Name the functions that find a run's noise and its certificate; the last ones named are used.

    Args:
        plan: (run, epsilon, delta, allow_large_delta=...) -> the run with its noise.
        certify: (run, delta, allow_large_delta=...) -> its certificate.
    """
    _counters.append(_Counters(plan, certify))


def planned(run: Run, epsilon: float, delta: float, *, allow_large_delta: bool = False) -> Run:
    """The run with the smallest noise that meets (epsilon, delta): `lethe.plan`.

    Args:
        run: whose noise is only a shape.
        epsilon, delta, allow_large_delta: the target.
    Raises:
        InputError, CalibrationError: as `lethe.plan`.
        LetheError: nobody counts.
    """
    return _named().plan(run, epsilon, delta, allow_large_delta=allow_large_delta)


def epsilon_of(run: Run, delta: float, *, allow_large_delta: bool = False) -> float:
    """The epsilon of a run's certificate: `lethe.certify`.

    Args:
        run, delta, allow_large_delta: as of `lethe.certify`.
    Raises:
        InputError, HypothesisError: as `lethe.certify`.
        LetheError: nobody counts.
    """
    return _named().certify(run, delta, allow_large_delta=allow_large_delta).epsilon


def _named() -> _Counters:
    if not _counters:
        raise LetheError("nobody counts privacy here.", remedy="import lethe, which names lethe.accounting")
    return _counters[-1]

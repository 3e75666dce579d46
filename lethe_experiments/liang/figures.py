r"""Liang et al. 2025, Figures 1 and 2: what a membership attack estimates of epsilon as epochs pass, and what may be said instead.

Beside each estimate: a certified lower bound from the same scores, the paper's bound as printed, and our certificate.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from lethe.errors import InputError, MissingExtraError
from lethe_experiments.base import Options, Progress, Reproduction
from lethe_experiments.liang.notes import notes
from lethe_experiments.liang.pictures import REMEDY, pictures_from
from lethe_experiments.liang.plans import FULL_1, FULL_2, QUICK_1, QUICK_2, Plan


def liang_figure_1(progress: Progress | None = None, options: Options | None = None, *, plan: Plan | None = None) -> Reproduction:
    """Liang et al. 2025, Figure 1: epsilon by membership inference against epochs, for several batch sizes (takes minutes).

    Args:
        progress: told after each network (records seen by networks in training, such in all).
        options: the data, the number of repeats, and whether to take the paper's sizes.
        plan: what to compute; None: QUICK_1, or FULL_1 if the options ask for it.
    Raises:
        InputError: the data cannot be used, or is too small.
        MissingExtraError: PyTorch, joblib, or scikit-learn where no data is given, is not installed.
        LetheError: a training was lost where `joblib.parallel_config` had it carried out.
    """
    return _figure(1, "for several batch sizes", progress, options, plan or (FULL_1 if options and options.full else QUICK_1))


def liang_figure_2(progress: Progress | None = None, options: Options | None = None, *, plan: Plan | None = None) -> Reproduction:
    """Liang et al. 2025, Figure 2: the same epsilon for several diameters of a domain that iterates are projected on (takes minutes).

    Args, Raises: as `liang_figure_1`, with QUICK_2 and FULL_2.
    """
    return _figure(2, "for several diameters of the domain", progress, options, plan or (FULL_2 if options and options.full else QUICK_2))


def _figure(number: int, what: str, progress: Progress | None, options: Options | None, plan: Plan) -> Reproduction:
    if find_spec("torch") is None:
        needed = f"liang-figure-{number} trains, and needs PyTorch, which is not installed."
        raise MissingExtraError(needed, remedy='pip install "lethe-dp[train]"')
    from lethe_experiments.liang.curves import COLUMNS, curve

    chosen = options or Options()
    work = plan if chosen.repeats is None else replace(plan, repeats=chosen.repeats)
    data = pictures_from(chosen.data)
    if len(data.labels) < 2 * work.candidates:
        raise InputError(
            f"{data.name} has {len(data.labels)} pictures; it needs {2 * work.candidates}, half of them for shadow models.",
            source="--data, or the digits without it",
            remedy=REMEDY,
        )
    done = 0

    def count(visits: int) -> None:
        nonlocal done
        done += visits
        if progress is not None:
            progress(done, work.visits)

    rows = tuple(row for setting in work.settings for row in curve(data, work, setting, count))
    return Reproduction(
        name=f"liang-figure-{number}",
        title=f"Liang et al. 2025, Figure {number}: epsilon by membership inference against epochs, {what}",
        source="Liang, Zhang, He, Wu, Xing, An improved privacy and utility analysis of differentially private SGD with bounded domain and "
        f"smooth losses, AAAI 2026, arXiv:2502.17772, Section 4 and Figure {number}.",
        shape="epochs",
        columns=COLUMNS,
        rows=rows,
        notes=notes(data.name, work),
    )

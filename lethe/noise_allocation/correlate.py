"""correlate: give a run the correlated noise that does least harm to its iterates.

`lethe.correlate`, `noise_shapes` and the estimators call it with a Run. Correlated noise is $C^{-1}z$, z fresh noise: later noise partly
cancels earlier, and C is chosen here.
"""

import hashlib
import os
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from lethe.calculus.correlated.matrices import MOST_DENSE, prefix_sums, sgd_workload
from lethe.calculus.correlated.optimum import banded_inverse, banded_toeplitz, buffered_toeplitz, dense
from lethe.calculus.domains import FloatArray, require_count
from lethe.documents.strict import to_json
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.noise import BandedInverse, BandedToeplitz, BufferedToeplitz, LowerTriangular
from lethe.run.noise.strategies import CorrelatedNoise
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules import Influence

Strategy = Literal["banded_toeplitz", "buffered_toeplitz", "banded_inverse", "dense"]

_MOST_BANDS = 64


def correlate(
    run: Run,
    strategy: Strategy = "banded_toeplitz",
    *,
    bands: int | None = None,
    buffers: int = 3,
    momentum: float = 0.0,
    influence: Influence | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Run:
    r"""The same run with correlated noise that is best for its order: the smallest mean squared error of its iterates' noise.

    The error is $\frac1T\|A C^{-1}\|_F^2\,\mathrm{sens}(C)^2$, with $x_t = x_0 - \sum_s A_{ts}(g_s + w_s)$: the squared distance of an
    iterate, a coordinate, from where the same gradients without noise would have led, in the mean over all iterates. That of the result
    is at most that of independent noise. The noise multiplier is left as it is: plan it anew, `lethe.plan(lethe.correlate(run), ...)`.

    Args:
        run: in a fixed order: cyclic, shuffled_once, balls_in_bins or full batches; or cyclic_poisson, whose sampling amplifies the privacy
            of a strategy of at most as many bands as there are groups.
        strategy: "banded_toeplitz": each step's noise depends on the `bands` - 1 before it. "buffered_toeplitz": on all before it, through
            `buffers` numbers a parameter. "banded_inverse": each step's noise is of its own draw and the `bands` - 1 before it, of which
            training keeps nothing where `bands` is 2. "dense": the best matrix, of up to 4096 steps, kept in the file `path`; training
            keeps the noise of all steps, or of the last `bands` - 1.
        bands: None: of a banded inverse 2; of a banded Toeplitz strategy as many as a pass has steps, but 8 to 64, or as many as there are
            groups, but at most 64; of a dense one all.
        buffers: at most 10.
        momentum: of the optimiser that takes the noisy gradients, in [0, 1); a `Linear` has none.
        influence: how noise fades until the end; then $A_{ts} = \sqrt{q_{T-t+s}/q_T}$: noise fades on its way to each iterate as it does on
            its way to the last one. None: it does not. For steps of one size, without momentum.
        path: of the .npy file that a dense strategy is written to; or an existing folder, in which the file is named by a hash of what was
            asked for, and is taken again, without a search, if it is there.
    Raises:
        InputError: an argument out of range, or a run that cannot have correlated noise.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=4.0,
        ...     release="all")
        >>> lethe.correlate(run, 'banded_inverse', bands=2).noise.kind
        'banded_inverse'
    """
    if strategy not in get_args(Strategy):
        raise InputError(f"strategy: got {strategy!r}; it needs one of {', '.join(get_args(Strategy))}.")
    if (strategy == "dense") != (path is not None):
        raise InputError(f"path: got {path}; a dense strategy alone needs a file, which ends in .npy.", source="strategy, path")
    plain = require_run(run, correlated=True).uncorrelated
    plain.replace(noise=BandedToeplitz(coefficients=(1.0,)))  # refuses what cannot have any, before a long search
    steps, slots = plain.total_steps, plain.batches.period(plain.records) or 1
    if bands is not None:
        bands = require_count("bands", bands, high=steps)
    if influence is not None and momentum != 0.0:
        raise InputError(
            f"influence: got one, and momentum = {momentum:g}; how noise fades under momentum is not known here.",
            source="influence, momentum",
            remedy="leave out one of the two.",
        )
    noise: CorrelatedNoise
    if strategy == "dense":
        assert path is not None
        require_count("steps", steps, high=MOST_DENSE)
        full = sgd_workload(plain.step_sizes, momentum=momentum) if influence is None else _toeplitz(plain, momentum, influence)
        noise = _kept_dense(path, steps, slots, workload=full, bands=bands)
    elif strategy == "buffered_toeplitz":
        found = buffered_toeplitz(steps, slots, buffers, workload=_toeplitz(plain, momentum, influence))
        noise = BufferedToeplitz(**found._asdict())
    elif strategy == "banded_inverse":
        found = banded_inverse(steps, slots, min(2, steps) if bands is None else bands, workload=_toeplitz(plain, momentum, influence))
        noise = BandedInverse(coefficients=tuple(found.tolist()))
    else:
        # More bands than groups would lose what the sampling hides.
        usual = slots if plain.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP else max(8, slots)
        width = min(steps, _MOST_BANDS, usual) if bands is None else bands
        coefficients = banded_toeplitz(steps, slots, width, workload=_toeplitz(plain, momentum, influence))
        noise = BandedToeplitz(coefficients=tuple(coefficients.tolist()))
    return plain.replace(noise=noise)


def _toeplitz(run: Run, momentum: float, influence: Influence | None) -> FloatArray:
    """The workload of the run's step sizes and momentum."""
    sizes = run.step_sizes
    if sizes.min() != sizes.max():
        raise InputError(
            f"step_size: runs from {sizes.min():g} to {sizes.max():g}; a Toeplitz strategy is the best for steps of one size.",
            source="step_size",
            remedy='take strategy="dense", or correlate the run with one step size and give its noise to this one: it is as private.',
        )
    if influence is not None:
        fading = np.sqrt(influence.values(run.total_steps)[::-1])
        return np.asarray(fading / fading[0], dtype=np.float64)
    return prefix_sums(run.total_steps) if momentum == 0.0 else sgd_workload(sizes, momentum=momentum)


def _kept_dense(path: str | os.PathLike[str], steps: int, slots: int, *, workload: FloatArray, bands: int | None) -> LowerTriangular:
    """`dense`, written to a file; of a folder the file that an earlier search has left, whose matrix is certified, whatever it is."""
    file = Path(path)
    if file.is_dir():
        request = {
            "lethe": __version__,
            "steps": steps,
            "slots": slots,
            "bands": bands,
            "shape": list(workload.shape),
            "workload": hashlib.sha256(workload.astype("<f8").tobytes()).hexdigest(),
        }
        file = file / f"strategy-{hashlib.sha256(to_json(request, indent=None).encode()).hexdigest()[:32]}.npy"
        if file.exists():
            noise = LowerTriangular.at(file)
            noise.strategy(steps)  # refuses one for another number of steps
            return noise
    return LowerTriangular.saved(dense(steps, slots, workload=workload, bands=bands), file)

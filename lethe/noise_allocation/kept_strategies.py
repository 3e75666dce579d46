"""Dense strategies on disk: searched once, found again by a hash of what was asked for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from lethe.calculus.correlated.optimum import dense
from lethe.calculus.domains import FloatArray
from lethe.documents.strict import to_json
from lethe.documents.version import __version__
from lethe.run.noise import LowerTriangular


def kept_dense(path: str | os.PathLike[str], steps: int, slots: int, *, workload: FloatArray, bands: int | None) -> LowerTriangular:
    """`dense`, written to a file; of a folder it is the file that an earlier search for the same thing has left.

    What is found is used as it is: a certificate is one on the matrix that the file holds, whatever that is.

    Args:
        path: of a .npy file to be written, or of an existing folder.
        steps, slots, bands: as `dense`.
        workload: A, shape (T,) or (T, T).
    Raises:
        InputError: the file cannot be written, or what is found there is no strategy for so many steps.
    """
    file = Path(path)
    if file.is_dir():
        file = file / f"strategy-{_name(steps, slots, workload, bands)}.npy"
        if file.exists():
            noise = LowerTriangular.at(file)
            noise.strategy(steps)  # refuses one for another number of steps
            return noise
    return LowerTriangular.saved(dense(steps, slots, workload=workload, bands=bands), file)


def _name(steps: int, slots: int, workload: FloatArray, bands: int | None) -> str:
    asked = {
        "lethe": __version__,
        "steps": steps,
        "slots": slots,
        "bands": bands,
        "shape": list(workload.shape),
        "workload": hashlib.sha256(workload.astype("<f8").tobytes()).hexdigest(),
    }
    return hashlib.sha256(to_json(asked, indent=None).encode()).hexdigest()[:32]

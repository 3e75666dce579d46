"""Where networks take correlated noise, and where it is refused."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.shared import Noise
from lethe.train.network.options import NetworkOptions
from lethe.train.options import CommonOptions


def refuse_correlated_network(run: Run, common: CommonOptions, options: NetworkOptions) -> None:
    """Refuse what training a network with correlated noise does not know; nothing where the noise is independent.

    Args:
        run: to be carried out.
        common, options: as training was given them.
    Raises:
        InputError: `run` releases the last iterate alone; checkpoints, callbacks, secure noise, or several processes.
    """
    if run.noise is None:
        return
    refused = {
        "run.release = last": run.release != "all",
        "checkpoints": options.checkpoints is not None,
        "callbacks": common.callbacks.asked,
        "secure": bool(options.secure),
        "several processes": Workers.current().several,
    }
    found = [name for name, there in refused.items() if there]
    if found:
        raise InputError(
            f"noise: a network with {run.noise.kind} noise is not trained with {' and '.join(found)}.",
            source="run.noise",
            remedy="leave it out, with release: all, which costs no more; or take independent noise.",
        )


def correlating(run: Run, noise: Noise, parameters: Sequence[Tensor]) -> Noise:
    """The noise that a run asks for, from what is drawn anew at each step.

    Args:
        run: whose noise may be correlated.
        noise: drawn anew at each step.
        parameters: that are trained, of any shapes.
    Raises:
        LetheError: correlated noise would outgrow its draws.
    """
    if run.noise is None:
        return noise
    assert isinstance(noise, NetworkNoise)  # refuse_correlated_network has refused the others
    coarsest = max((parameter.dtype for parameter in parameters), key=lambda dtype: torch.finfo(dtype).eps)
    return CorrelatedNetworkNoise(run, noise, coarsest)

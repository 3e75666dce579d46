"""What training a network with correlated noise does not know."""

from __future__ import annotations

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.distributed.placement import Placement
from lethe.train.network.options import NetworkOptions
from lethe.train.options import CommonOptions


def refuse_correlated_network(run: Run, common: CommonOptions, options: NetworkOptions, placement: Placement) -> None:
    """Refuse what training a network with correlated noise does not know; nothing where the noise is independent.

    Args:
        run: to be carried out.
        common, options: as training was given them.
        placement: of the trained parameters.
    Raises:
        InputError: `run` releases the last iterate alone; callbacks or a ledger; checkpoints of shards.
    """
    if run.noise is None:
        return
    refused = {
        "run.release = last": run.release != "all",
        "callbacks or a ledger": common.callbacks.asked,
        "checkpoints of parameters in shards": placement.sharded and options.checkpoints is not None,
    }
    found = [name for name, there in refused.items() if there]
    if found:
        raise InputError(
            f"noise: a network with {run.noise.kind} noise is not trained with {' and '.join(found)}.",
            source="run.noise",
            remedy="leave it out, with release: all, which costs no more; or take independent noise.",
        )

"""Where an estimator's randomness comes from: `random_state` for what is public, fresh entropy for what must be secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from lethe.calculus.domains import require_switch
from lethe.errors import InputError
from lethe.estimators.choice.mechanism import RandomSources
from lethe.train.core.generators import fresh_generator, seeded_generators


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Randomness:
    """The generators of one fit; none of them is kept.

    Args:
        order: the public order in which batches count the records, shape (n,); None: as they are stored, which only tables in blocks are.
        norm: noise of the private feature norm and of other releases before training; None: fresh entropy.
        draws: of the training.
    """

    order: Any
    norm: np.random.Generator | None
    draws: RandomSources


def randomness(random_state: Any, seed_noise: Any, records: int, *, stored_order: bool = False) -> Randomness:
    """Draw the public order from `random_state`, and noise and secret draws from fresh entropy unless `seed_noise` is True.

    Permutations and samples that a certificate calls secret count as noise here: who knows a seed knows them. So `random_state` alone
    makes nothing `seeded`, be it a number or a generator: what comes from it is public. With `seed_noise` all is.

    Args:
        random_state: None, an integer or a numpy RandomState, as in scikit-learn.
        seed_noise: whether noise and secret batches follow from it too.
        records: n, the number of places to put in order.
        stored_order: whether records stay in the order in which they are stored; noise from a seed is the same all the same.
    Raises:
        InputError: seed_noise is no truth value, or True without a random_state, or random_state makes no numbers.
    """
    if require_switch("seed_noise", seed_noise) and random_state is None:
        raise InputError(
            "seed_noise = True without a random_state: there is nothing to seed the noise with.",
            source="the parameters seed_noise and random_state",
            remedy="give random_state, or leave seed_noise out, as you must where privacy matters",
        )
    try:
        public = check_random_state(random_state)
    except ValueError as error:
        raise InputError(
            f"random_state = {random_state!r}; it needs None, an integer in 0..2**32 - 1 or a numpy.random.RandomState.",
            source="the parameter random_state",
        ) from error
    order = None
    if not stored_order or seed_noise:
        drawn = public.permutation(records).astype(np.intp, copy=False)
        order = None if stored_order else drawn
    cpu = torch.device("cpu")
    if not seed_noise:
        fresh = RandomSources(batches=fresh_generator(cpu), noise=fresh_generator(cpu), mechanism=None, seeded=False)
        return Randomness(order=order, norm=None, draws=fresh)
    seeds = [int(seed) for seed in public.randint(2**31 - 1, size=3)]
    batches, noise = seeded_generators(seeds[0], (cpu, cpu))
    return Randomness(
        order=order,
        norm=np.random.default_rng(seeds[1]),
        draws=RandomSources(batches=batches, noise=noise, mechanism=np.random.default_rng(seeds[2]), seeded=True),
    )

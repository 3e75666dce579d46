"""Random generators: fresh from the operating system's entropy for privacy, seeded for tests and benchmarks. Batches and noise take theirs
from here; checkpoints refuse, by `state_digest`, a generator whose noise was already added once.
"""

import hashlib
import json
import os
from collections.abc import Sequence

import numpy as np
import torch

from lethe.errors import InputError

# The state of PyTorch's Mersenne Twister: 624 words of 32 bits, each in 8 bytes, after the seed and two counters.
_WORDS = 624
_OFFSET = 24

# The first words of the keys of `stream_generator`; those of `seeded_generators` begin with less.
OF_SHARDS, OF_STEPS = 2**16, 2**17


def fresh_generator(device: torch.device) -> torch.Generator:
    """A generator that nobody can repeat, from the operating system's entropy.

    On the CPU the whole state is drawn: `torch.Generator.manual_seed` keeps 32 bits of its seed only, few enough to try them all.
    It is not a cryptographic generator: who sees enough of its raw output can predict the rest (`secure=True` is).
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    if device.type == "cpu":
        state = generator.get_state()
        words = state[_OFFSET : _OFFSET + 8 * _WORDS].view(_WORDS, 8)
        words[:, :4] = torch.frombuffer(bytearray(os.urandom(4 * _WORDS)), dtype=torch.uint8).view(_WORDS, 4)
        generator.set_state(state)
    return generator


def _repeatable(stream: np.random.SeedSequence, device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(int(stream.generate_state(1, np.uint32)[0]))


def seeded_generators(seed: int, devices: tuple[torch.device, ...], *, start: int = 0) -> tuple[torch.Generator, ...]:
    """Repeatable generators with unrelated streams, one for each device.

    Two trainings under one seed share their noise: the difference of what they release may have none left. Each start has streams of its
    own, so noise is not used twice.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: got {seed!r}; it needs an integer >= 0, or None.", remedy="leave it out when privacy matters.")
    parent = np.random.SeedSequence(int(seed), spawn_key=(len(devices), start) if start else ())
    return tuple(map(_repeatable, parent.spawn(len(devices)), devices))


def stream_generator(seed: int, device: torch.device, *key: int) -> torch.Generator:
    """A generator with a stream of its own under a seed, by a key: the same one in whatever process asks for it.

    The key is OF_SHARDS, a start as of `seeded_generators` and a rank, for the noise of one process's shards. Or it is OF_STEPS, a part and
    a step from 0, for the draws of one step of correlated noise: part 0 of what all processes hold whole, rank + 1 of a process's shards. A
    step is never taken twice, so no number is used for two things.
    """
    return _repeatable(np.random.SeedSequence(int(seed), spawn_key=key), device)


def keyed_generator(key: Sequence[int], device: torch.device) -> np.random.Generator | torch.Generator:
    """The same generator whenever it is asked for by a key, words of 63 bits: as good as a fresh one, which has no more on a GPU."""
    if device.type == "cpu":
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))
    return torch.Generator(device=device).manual_seed(key[0])


def same_stream(first: object, second: object) -> bool:
    """Whether two objects are PyTorch generators that give the same numbers from here on."""
    if not (isinstance(first, torch.Generator) and isinstance(second, torch.Generator)) or first.device.type != second.device.type:
        return False
    return first is second or torch.equal(first.get_state(), second.get_state())


def state_digest(generator: np.random.Generator | torch.Generator) -> str:
    """A hash of the generator's state, by which the same state is known again."""
    if isinstance(generator, torch.Generator):
        state = generator.get_state().numpy().tobytes()
    else:
        state = json.dumps(generator.bit_generator.state, sort_keys=True, default=np.ndarray.tolist).encode()
    return hashlib.blake2b(state, digest_size=32).hexdigest()

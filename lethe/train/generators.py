"""Random generators: fresh from the operating system's entropy for privacy, seeded for tests and benchmarks."""

from __future__ import annotations

import os

import numpy as np
import torch

from lethe.errors import InputError

# The state of PyTorch's Mersenne Twister: 624 words of 32 bits, each in 8 bytes, after the seed and two counters.
_WORDS = 624
_OFFSET = 24


def fresh_generator(device: torch.device) -> torch.Generator:
    """A generator that nobody can repeat, from the operating system's entropy.

    On the CPU the whole state is drawn: `torch.Generator.manual_seed` keeps 32 bits of its seed only, few enough to try them all.
    It is not a cryptographic generator: who sees enough of its raw output can predict the rest. A cryptographic one is left to a later
    secure mode.
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    if device.type == "cpu":
        state = generator.get_state()
        words = state[_OFFSET : _OFFSET + 8 * _WORDS].view(_WORDS, 8)
        words[:, :4] = torch.frombuffer(bytearray(os.urandom(4 * _WORDS)), dtype=torch.uint8).view(_WORDS, 4)
        generator.set_state(state)
    return generator


def seeded_generators(seed: int, devices: tuple[torch.device, ...]) -> tuple[torch.Generator, ...]:
    """Repeatable generators with unrelated streams, one for each device.

    Raises:
        InputError: the seed is no integer >= 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: got {seed!r}; it needs an integer >= 0, or None.", remedy="leave it out when privacy matters.")
    children = np.random.SeedSequence(int(seed)).spawn(len(devices))
    seeds = [int(child.generate_state(1, np.uint32)[0]) for child in children]
    return tuple(torch.Generator(device=device).manual_seed(number) for device, number in zip(devices, seeds, strict=True))

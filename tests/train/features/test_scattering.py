"""The scattering transform: against its definition, where its channels stand, what shifts and energies become, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night
from slow_scattering import slow_scattering

from lethe.estimators.features.images import synthetic_images
from lethe.estimators.features.modules import Scattering2d, gain, low_pass, wavelet
from lethe.features import ScatteringFeatures


def double(shape: tuple[int, int], **parameters: Any) -> Scattering2d:
    return Scattering2d(shape, dtype=torch.float64, **parameters)


def littlewood_paley(shape: tuple[int, int], scales: int, angles: int, larger: float = 1.0) -> np.ndarray:
    """The energy of the low pass, and of the wavelets at both signs of every frequency."""
    total = np.outer(low_pass(shape[0], scales), low_pass(shape[1], scales)) ** 2
    for scale in range(scales):
        for angle in range(angles):
            squares = (larger * gain(scales, angles) * wavelet(shape, scale, math.pi * angle / angles, angles)) ** 2
            total = total + (squares + np.roll(squares[::-1, ::-1], (1, 1), axis=(0, 1))) / 2.0
    return total


def pictures(count: int, rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).random((count, rows, columns)))


@pytest.mark.parametrize(
    ("shape", "scales", "angles"), [((6, 9), 2, 4), ((5, 4), 1, 5), pytest.param((9, 10), 3, 4, marks=pytest.mark.nightly)]
)
def test_every_channel_is_its_definition(shape: tuple[int, int], scales: int, angles: int) -> None:
    image = pictures(1, *shape)
    found = double(shape, scales=scales, angles=angles)(image)[0].numpy()
    expected = slow_scattering(image[0].numpy(), scales, angles)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-6)  # what frequencies beyond the first copy hold
    single = Scattering2d(shape, scales=scales, angles=angles)(image.float())[0].numpy()
    np.testing.assert_allclose(single, expected, atol=2e-6)


def test_channels_are_counted_and_ordered_as_the_page_says() -> None:
    module = Scattering2d((28, 28))
    assert (module.channels, module.output_shape) == (81, (7, 7))
    assert [len(path) for path in module.paths] == [0] + [1] * 16 + [2] * 64
    assert module.paths[1 + 8 + 3] == ((1, 3),)
    assert module.paths[17 + 8 * 5 + 2] == ((0, 5), (1, 2))
    for scales, angles in ((1, 4), (3, 6), (4, 8)) if by_night() else ((1, 4),):
        count = 1 + angles * scales + angles**2 * scales * (scales - 1) // 2
        assert len(Scattering2d((17, 20), scales=scales, angles=angles).paths) == count
    assert module(torch.zeros(2, 3, 28, 28)).shape == (2, 3, 81, 7, 7)
    assert (ScatteringFeatures().channels(), ScatteringFeatures(scales=3, angles=6).channels(3)) == (81, 3 * 127)
    colours = pictures(6, 12, 13).reshape(2, 3, 12, 13).numpy()
    table = ScatteringFeatures().fit_transform(colours)
    each = [ScatteringFeatures().fit_transform(colours[:, channel]) for channel in range(3)]
    np.testing.assert_allclose(table, np.hstack(each), rtol=1e-5)  # kernels of some processors round otherwise in other batches
    module = Scattering2d((12, 13))
    np.testing.assert_allclose(table.reshape(2, 3, 81, 3, 3), module(torch.tensor(colours, dtype=torch.float32)), atol=1e-6)


@pytest.mark.parametrize("angle", range(8))
def test_a_wave_is_seen_by_the_wavelet_of_its_frequency_and_direction(angle: int) -> None:
    """And so `paths` says which channel looks which way: cosines along columns, sines along rows."""
    module, theta = double((32, 32)), math.pi * angle / 8
    y, x = np.mgrid[:32, :32]
    for scale in range(2):
        wave = np.cos(0.75 * math.pi / 2**scale * (math.cos(theta) * x + math.sin(theta) * y))
        strength = module(torch.tensor(wave)[None])[0, 1:17, 2:6, 2:6].mean(dim=(1, 2))
        assert module.paths[1 + int(strength.argmax())] == ((scale, angle),)


@pytest.mark.parametrize(("scales", "angles"), [(1, 4), (2, 8), (3, 4)])
def test_no_frequency_gains_energy(scales: int, angles: int) -> None:
    for shape in ((36, 36), (100, 61)):
        assert littlewood_paley(shape, scales, angles).max() <= 1.0 + 1e-15
        assert littlewood_paley(shape, scales, angles)[0, 0] == 1.0  # the mean, which the low pass keeps
    # And on every grid that moduli are kept on.
    assert gain(scales, angles) == min(gain(one, angles) for one in range(1, scales + 1))


def test_wavelets_one_per_cent_larger_would_gain_energy() -> None:
    assert littlewood_paley((256, 256), 2, 8, larger=1.01).max() > 1.0


def test_a_shift_by_the_scale_shifts_the_channels_and_a_small_one_moves_them_little() -> None:
    images = torch.zeros(2, 40, 40, dtype=torch.float64)
    images[:, 14:26, 14:26] = pictures(2, 12, 12)
    module = double((40, 40))
    there, moved = module(images), module(images.roll((4, 8), dims=(1, 2)))
    torch.testing.assert_close(moved[..., 3:9, 3:9], there[..., 2:8, 1:7], atol=1e-12, rtol=0.0)
    pixel = images.roll(1, dims=2)
    relative = [float((new - old).norm() / old.norm()) for new, old in ((pixel, images), (module(pixel), there))]
    assert relative[1] < 0.5 * relative[0]


def test_energy_and_distances_do_not_grow_and_most_energy_is_kept() -> None:
    """A sample stands for 16 pixels. Content in the middle, so that no sample is cut off at the edge."""
    images = torch.zeros(8, 44, 44, dtype=torch.float64)
    images[:4, 12:32, 12:32] = pictures(4, 20, 20) - 0.5
    images[4:, 12:32, 12:32] = torch.tensor(synthetic_images((20, 20), images=4)[:, 0], dtype=torch.float64)
    found = double((44, 44))(images).flatten(1)
    kept = 16.0 * found.square().sum(dim=1) / images.square().sum(dim=(1, 2))
    assert (kept < 1.0).all()
    assert (kept[4:] > 0.75).all()
    for one in range(8):
        for two in range(one):
            assert 4.0 * (found[one] - found[two]).norm() < (images[one] - images[two]).norm()

"""ScatteringFeatures: averages of images, and averages of moduli of their wavelet coefficients (`lethe.estimators.features.wavelets`)."""

from dataclasses import dataclass
from typing import Any

from lethe.estimators.features.images import ImageFeatures


@dataclass(kw_only=True, eq=False, repr=False)
class ScatteringFeatures(ImageFeatures):
    r"""Scattering coefficients up to order 2 of every image by itself: fixed wavelets, nothing learned, nothing paid for.

    With J = 2 and L = 8 an image of 28 x 28 pixels becomes 81 channels of 7 x 7 positions, 3969 numbers. A row holds all positions of
    channel 0, then of channel 1, and so on: input channel by input channel, and of each the channels of `Scattering2d`.

    Args:
        image_shape: (rows, columns) or (channels, rows, columns) of images that come as rows of a table; None: they come as arrays of
            shape (n, H, W) or (n, C, H, W).
        scales: J, from 1 to 6: averages are over about $2^J$ pixels a side, and both sides of an image need more.
        angles: L, from 4 to 32.
    Attributes: `image_shape_` (channels, rows, columns), `n_features_in_`.
    Reference: Bruna, Mallat 2013, Invariant scattering convolution networks, arXiv:1203.1513v2; Oyallon, Mallat 2015, arXiv:1412.8659v2.
    """

    scales: int = 2
    angles: int = 8

    def channels(self, image_channels: int = 1) -> int:
        r"""How many channels come out: $1 + LJ + L^2J(J-1)/2$ for each that goes in, 81 with J = 2 and L = 8.

        Args:
            image_channels: of the images, 1 where they are grey.
        """
        from lethe.estimators.features.wavelets import Scattering2d  # loads torch, which takes seconds

        smallest = 2**self.scales + 1
        return image_channels * Scattering2d((smallest, smallest), scales=self.scales, angles=self.angles).channels

    def _module(self, shape: tuple[int, ...]) -> tuple[Any, int]:
        from lethe.estimators.features.wavelets import Scattering2d

        module = Scattering2d((shape[2], shape[3]), scales=self.scales, angles=self.angles)
        return module, shape[1] * module.channels * module.output_shape[0] * module.output_shape[1]

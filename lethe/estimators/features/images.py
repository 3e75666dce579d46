"""Image features as transformers (random filters, scattering), images as arrays or rows of a table, and synthetic images.

Models on images need features that no record was read for, since learned ones cost privacy. Users call `RandomConvolutionFeatures` and
`ScatteringFeatures` as steps of a pipeline (`lethe.features`); the modules that compute them are in modules.py.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from lethe.calculus.domains import outside, require_count
from lethe.errors import InputError

_BYTE = 255
_LARGEST = 1e6  # of an entry: squares of sums over a million pixels stay finite in float32
_NEEDED = "images of shape (n, H, W) or (n, C, H, W), or rows of C H W pixels with image_shape=(C, H, W)"
_DISCS = 30
_SMALLEST, _WIDEST = 1.0, 0.4  # radii of discs: pixels, and of the shorter side

Pixels = np.ndarray[Any, Any]


@dataclass(eq=False, repr=False)
class ImageFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer of images, each by itself, whose numbers come from its parameters and the images' shape alone.

    `fit` keeps the shape of the images and nothing else, so `privacy_of` counts it as free. Whole numbers (bytes) are divided by 255.
    """

    image_shape: Any = None
    _block = 64  # images at once: few enough that what is computed of them stays in the processor's cache

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False  # of any shape: rows are images of a shape that was said
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the shape of images (n, H, W), (n, C, H, W), or (n, C H W) with image_shape; y is not used."""
        images = read_images(X, self.image_shape)
        _, size = self._module(images.shape)
        self.image_shape_ = images.shape[1], images.shape[2], images.shape[3]
        self.n_features_in_ = int(np.prod(self.image_shape_))
        self._n_features_out = size
        return self

    def transform(self, X: Any) -> Pixels:
        """The features of every image, shape (n, channels * positions), float32: all positions of a channel, then of the next."""
        fitted = getattr(self, "image_shape_", None)
        images = read_images(X, fitted if fitted is not None and np.ndim(X) == 2 else self.image_shape)
        if fitted is not None and images.shape[1:] != fitted:
            raise InputError(
                f"X: images of shape {images.shape[1:]} (channels, rows, columns); this {type(self).__name__} was fitted to {fitted}.",
                source="the argument X",
                remedy="give images of that shape, or fit it again",
            )
        import torch  # takes seconds to load

        module, size = self._module(images.shape)
        table = np.empty((len(images), size), dtype=np.float32)
        with torch.inference_mode():
            for first in range(0, len(images), self._block):
                part = torch.from_numpy(_block_of_images(images, first, self._block))
                table[first : first + self._block] = module(part).flatten(1).numpy()
        return table

    @abstractmethod
    def _module(self, shape: tuple[int, ...]) -> tuple[Any, int]:
        """What transforms (n, C, H, W), and how many numbers it makes of one record."""


def read_images(X: Any, image_shape: Any) -> Pixels:
    """Images with an axis of channels, shape (n, C, H, W), of their own type and not copied where they are an array."""
    declared = declared_shape(image_shape)
    try:
        images = np.asarray(X)
    except (TypeError, ValueError):
        raise outside("X", type(X).__name__, _NEEDED) from None
    if images.dtype.kind not in "biuf":
        raise outside("X", f"array of type {images.dtype}", "numbers: whole ones from 0 to 255, or floating-point ones")
    if images.ndim == 2 and declared is not None:
        if images.shape[1] != math.prod(declared):
            raise InputError(
                f"X: {images.shape[1]} columns; image_shape = {image_shape!r} needs {math.prod(declared)}.",
                source="the argument X and the parameter image_shape",
                remedy="give all pixels of an image as one row: channels, rows, columns, the last one fastest",
            )
        images = images.reshape(len(images), *declared)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise outside("X", f"array of shape {np.shape(X)}", _NEEDED)
    if declared is not None and images.shape[1:] != declared:
        raise InputError(
            f"X: images of shape {images.shape[1:]} (channels, rows, columns); image_shape = {image_shape!r} needs {declared}.",
            source="the argument X and the parameter image_shape",
            remedy="channels come first: np.moveaxis(images, -1, 1) for images that have them last",
        )
    return images


def declared_shape(image_shape: Any) -> tuple[int, int, int] | None:
    """Channels, rows and columns as the parameter image_shape says; None: it says nothing."""
    if image_shape is None:
        return None
    needed = "None, (rows, columns) or (channels, rows, columns), whole numbers of at least 1"
    if not isinstance(image_shape, tuple | list) or len(image_shape) not in (2, 3):
        raise outside("image_shape", image_shape, needed)
    sides = [require_count("image_shape", side) for side in image_shape]
    return (1, sides[0], sides[1]) if len(sides) == 2 else (sides[0], sides[1], sides[2])


def _block_of_images(images: Pixels, first: int, count: int) -> Pixels:
    """`count` images from the first one on as float32, a copy: whole numbers, 0 to 255, become 0 to 1; others stay as they are."""
    part = images[first : first + count]
    if part.dtype.kind in "iu":
        if part.dtype != np.uint8 and part.size and not (part.min() >= 0 and part.max() <= _BYTE):
            raise _wrong((part < 0) | (part > _BYTE), first, "whole numbers from 0 to 255, which become 0 to 1")
        return part.astype(np.float32, order="C") / np.float32(_BYTE)
    if part.dtype.kind == "f" and not (np.abs(part) <= _LARGEST).all():  # nan is not either
        raise _wrong(~(np.abs(part) <= _LARGEST), first, f"finite numbers within {_LARGEST:g}")
    return part.astype(np.float32, order="C")  # of another order sums would round otherwise


def _wrong(where: Pixels, first: int, needed: str) -> InputError:
    image, channel, row, column = np.argwhere(where)[0].tolist()
    return InputError(
        f"X: image {first + image}, channel {channel}, pixel ({row}, {column}) is out of range; it needs {needed}.",
        source="the argument X",
        remedy="scale images to 0..1 as floating-point numbers, or give them as numpy.uint8; fill in what is missing",
    )


def synthetic_images(image_shape: tuple[int, ...], *, images: int = 1000, seed: int = 0) -> Pixels:
    r"""Images with entries from 0 to 1, float32, that a seeded generator draws: no picture was looked at for them.

    Dead leaves: discs that cover one another, of radii r with a density $\propto r^{-3}$ and of random brightness, on a random background;
    some cut by a line, so that there are straight edges too. They have edges, flat parts and a spectrum that falls like that of
    photographs, at all scales: enough for the moments of edge filters.

    Reference: Lee, Mumford, Huang 2001, Occlusion models for natural images, IJCV 41.
    """
    shape = declared_shape(image_shape)
    if shape is None:
        raise outside("image_shape", None, "(rows, columns) or (channels, rows, columns)")
    channels, rows, columns = shape
    generator = np.random.default_rng(require_count("seed", seed, low=0, high=2**63 - 1))
    count = require_count("images", images, low=2, high=10**7)
    down, across = np.mgrid[0.5 : rows + 0.5, 0.5 : columns + 0.5]
    images_out = np.empty((count, channels, rows, columns), dtype=np.float32)
    largest = max(_WIDEST * min(rows, columns), 2.0 * _SMALLEST)
    for image in images_out:
        image[:] = generator.random((channels, 1, 1))
        for _ in range(_DISCS):
            # The inverse of the distribution function of a density r^-3 between two ends.
            radius = (_SMALLEST**-2 - generator.random() * (_SMALLEST**-2 - largest**-2)) ** -0.5
            y, x = down - rows * generator.random(), across - columns * generator.random()
            angle, cut = 2.0 * np.pi * generator.random(), generator.uniform(-1.0, 2.0)
            leaf = (np.square(y) + np.square(x) <= radius**2) & (np.cos(angle) * x + np.sin(angle) * y <= cut * radius)
            image[:, leaf] = generator.random((channels, 1))
    return images_out


@dataclass(kw_only=True, eq=False, repr=False)
class RandomConvolutionFeatures(ImageFeatures):
    r"""Rectified responses of the patches of every image to random filters, averaged over cells: nothing learned, nothing paid for.

    A row holds all cells of channel 0, then of channel 1, and so on, with the channels of `RandomConvolutions2d`.

    Args:
        image_shape: (rows, columns) or (channels, rows, columns) of images that come as rows of a table; None: they come as arrays of
            shape (n, H, W) or (n, C, H, W).
        filters: F, at least 1; a record has 2F channels.
        kernel_size: rows and columns of a patch, at least 2.
        cells: rows and columns of the grid of averages, at least 1; a record has 2F cells^2 features.
        threshold: what is taken off a response before it is rectified, >= 0.
        seed: of the filters, public.
    Attributes: `image_shape_` (channels, rows, columns), `n_features_in_`.
    Reference: Coates, Ng 2011, The importance of encoding versus training with sparse coding and vector quantization, ICML.
    """

    filters: int = 256
    kernel_size: int = 5
    cells: int = 4
    threshold: float = 0.5
    seed: int = 0

    def _module(self, shape: tuple[int, ...]) -> tuple[Any, int]:
        from lethe.estimators.features.modules import RandomConvolutions2d, require_patches

        module = RandomConvolutions2d(
            shape[1], filters=self.filters, kernel_size=self.kernel_size, cells=self.cells, threshold=self.threshold, seed=self.seed
        )
        require_patches(shape, shape[1], module.kernel_size, module.cells)
        return module, 2 * len(module.weights) * module.cells**2


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
        from lethe.estimators.features.modules import Scattering2d  # loads torch, which takes seconds

        smallest = 2**self.scales + 1
        return image_channels * Scattering2d((smallest, smallest), scales=self.scales, angles=self.angles).channels

    def _module(self, shape: tuple[int, ...]) -> tuple[Any, int]:
        from lethe.estimators.features.modules import Scattering2d

        module = Scattering2d((shape[2], shape[3]), scales=self.scales, angles=self.angles)
        return module, shape[1] * module.channels * module.output_shape[0] * module.output_shape[1]

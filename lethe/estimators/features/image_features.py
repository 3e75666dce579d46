"""ImageFeatures: what transformers of images share: blocks of images through a PyTorch module, into one float32 table."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from torch import nn

from lethe.errors import InputError
from lethe.estimators.features.images import Pixels, block_of_images, read_images

Table = np.ndarray[Any, np.dtype[np.float32]]


class ImageFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer of images, each by itself, whose numbers come from its parameters and the images' shape alone.

    `fit` keeps the shape of the images and nothing else, so `privacy_of` counts it as free. Whole numbers (bytes) are divided by 255.
    """

    image_shape: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False  # of any shape: rows are images of a shape that was said
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the images' shape.

        Args:
            X: images, shape (n, H, W), (n, C, H, W), or (n, C H W) with image_shape.
            y: not used.
        Raises:
            InputError: images or parameters that cannot be used.
        """
        images = read_images(X, self.image_shape)
        _, size = self._module(images.shape)
        self.image_shape_ = images.shape[1], images.shape[2], images.shape[3]
        self.n_features_in_ = int(np.prod(self.image_shape_))
        self._n_features_out = size
        return self

    def transform(self, X: Any) -> Table:
        """The features of every image, in float32; no more than a block of images is ever worked on at once.

        Args:
            X: images, as in fit.
        Returns:
            Shape (n, channels * positions): all positions of the first channel, then of the next.
        Raises:
            InputError: images of another shape than were fitted, or that cannot be used.
        """
        fitted = getattr(self, "image_shape_", None)
        images = read_images(X, fitted if fitted is not None and np.ndim(X) == 2 else self.image_shape)
        if fitted is not None and images.shape[1:] != fitted:
            raise InputError(
                f"X: images of shape {images.shape[1:]} (channels, rows, columns); this {type(self).__name__} was fitted to {fitted}.",
                source="the argument X",
                remedy="give images of that shape, or fit it again",
            )
        module, size = self._module(images.shape)
        return transformed(images, module, size, self._block)

    _block = 64
    """Images at once: few enough that what is computed of them stays in the processor's cache."""

    @abstractmethod
    def _module(self, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """What transforms (n, C, H, W), and how many numbers it makes of one record.

        Args:
            shape: of the images.
        """


def transformed(images: Pixels, module: nn.Module, size: int, block: int) -> Table:
    """What a module makes of images, block by block, a row each.

    Args:
        images: shape (n, C, H, W).
        module: of it.
        size: numbers a record.
        block: images at once.
    Returns:
        Shape (n, size).
    Raises:
        InputError: an entry that cannot be used.
    """
    table = np.empty((len(images), size), dtype=np.float32)
    with torch.inference_mode():
        for first in range(0, len(images), block):
            part = torch.from_numpy(block_of_images(images, first, block))
            table[first : first + block] = module(part).flatten(1).numpy()
    return table

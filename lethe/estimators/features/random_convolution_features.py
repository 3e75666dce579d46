"""Responses of image patches to random filters, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

from torch import nn

from lethe.estimators.features.image_features import ImageFeatures
from lethe.estimators.features.random_convolutions2d import RandomConvolutions2d, require_patches


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

    def __init__(
        self,
        image_shape: Any = None,
        *,
        filters: int = 256,
        kernel_size: int = 5,
        cells: int = 4,
        threshold: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.image_shape = image_shape
        self.filters = filters
        self.kernel_size = kernel_size
        self.cells = cells
        self.threshold = threshold
        self.seed = seed

    def _module(self, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        module = RandomConvolutions2d(
            shape[1], filters=self.filters, kernel_size=self.kernel_size, cells=self.cells, threshold=self.threshold, seed=self.seed
        )
        require_patches(shape, shape[1], module.kernel_size, module.cells)
        return module, 2 * len(module.weights) * module.cells**2

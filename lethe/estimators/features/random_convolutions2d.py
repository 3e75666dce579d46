r"""RandomConvolutions2d: patches of an image against random filters, rectified and averaged, as a PyTorch module.

For a patch p of m pixels with mean $\bar p$, and a Gaussian filter w, centred and of norm 1:

$$z = \frac{\langle w, p\rangle}{\sqrt{\|p - \bar p\|^2/m + s}},\qquad \max(z - t, 0),\ \max(-z - t, 0),$$

averaged over the cells of a grid of positions. Dividing by the patch's own contrast makes bright and dim images alike.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count, require_nonnegative
from lethe.errors import InputError

_STEADY = 10.0 / 255.0**2  # s: a patch with less contrast than some grey levels is not blown up


class RandomConvolutions2d(nn.Module):
    r"""Averages of rectified responses of image patches to random filters, each image by itself.

    The channels are $\max(z - t, 0)$ of every filter, then $\max(-z - t, 0)$ of every filter.

    Args:
        channels: of the images, at least 1.
        filters: F, at least 1; 2F channels come out.
        kernel_size: rows and columns of a patch, at least 2; images are as large or larger.
        cells: rows and columns of the grid whose cells are averaged over, at least 1.
        threshold: t >= 0.
        seed: of the filters, public: the same seed gives the same filters.
        dtype: of images and channels, torch.float32 or torch.float64.
    Raises:
        InputError: an argument is out of its range.
    Reference: Coates, Ng 2011, The importance of encoding versus training with sparse coding and vector quantization, ICML.
    """

    weights: Tensor

    def __init__(
        self,
        channels: int = 1,
        *,
        filters: int = 256,
        kernel_size: int = 5,
        cells: int = 4,
        threshold: float = 0.5,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kernel_size = require_count("kernel_size", kernel_size, low=2, high=1000)
        self.cells = require_count("cells", cells, low=1, high=1000)
        self.threshold = require_nonnegative("threshold", threshold, allow_infinity=False)
        count, depth = require_count("filters", filters, high=10**6), require_count("channels", channels, high=10**6)
        shape = count, depth, self.kernel_size, self.kernel_size
        drawn = np.random.default_rng(require_count("seed", seed, low=0, high=2**63 - 1)).standard_normal(shape)
        drawn -= drawn.mean(axis=(1, 2, 3), keepdims=True)
        drawn /= np.sqrt(np.square(drawn).sum(axis=(1, 2, 3), keepdims=True))
        self.register_buffer("weights", torch.tensor(drawn, dtype=dtype), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The channels of every image.

        Args:
            images: shape (n, C, H, W), of type dtype.
        Returns:
            Shape (n, 2F, cells, cells).
        Raises:
            InputError: images with another number of channels, or too small.
        """
        require_patches(tuple(images.shape), self.weights.shape[1], self.kernel_size, self.cells)
        box = torch.ones_like(self.weights[:1]) / self.weights[0].numel()
        centred = images - images.mean(dim=(1, 2, 3), keepdim=True)  # filters do not see it, and squares lose nothing to it
        mean = nn.functional.conv2d(centred, box)
        spread = (nn.functional.conv2d(centred.square(), box) - mean.square()).clamp_min_(0.0)
        found = nn.functional.conv2d(centred, self.weights) / (spread + _STEADY).sqrt()
        rectified = torch.cat([found - self.threshold, -found - self.threshold], dim=1).clamp_min_(0.0)
        return nn.functional.adaptive_avg_pool2d(rectified, self.cells)


def require_patches(shape: tuple[int, ...], channels: int, kernel_size: int, cells: int) -> None:
    """Whether images have enough patches.

    Args:
        shape: of the images, (n, C, H, W).
        channels: C of the filters.
        kernel_size: rows and columns of a patch.
        cells: rows and columns of the grid of averages.
    Raises:
        InputError: they have not.
    """
    least = kernel_size + cells - 1
    if len(shape) != 4 or shape[1] != channels or min(shape[2:]) < least:
        raise InputError(
            f"images: got shape {shape}; kernel_size = {kernel_size} and cells = {cells} need (n, {channels}, H, W) with H and W at least "
            f"{least}.",
            source="the images, and the parameters kernel_size and cells",
            remedy="take smaller kernels or fewer cells, or larger images",
        )

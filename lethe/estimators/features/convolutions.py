r"""The responses of images to random filters, as a module.

For a patch p of m pixels with mean $\bar p$, and a Gaussian filter w, centred and of norm 1:

$$z = \frac{\langle w, p\rangle}{\sqrt{\|p - \bar p\|^2/m + s}},\qquad \max(z - t, 0),\ \max(-z - t, 0),$$

averaged over the cells of a grid of positions. Dividing by the patch's own contrast makes bright and dim images alike.
"""

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count, require_nonnegative
from lethe.errors import InputError

_STEADY = 10.0 / 255.0**2  # s: a patch with less contrast than some grey levels is not blown up


class RandomConvolutions2d(nn.Module):
    r"""`RandomConvolutionFeatures` as a module: $\max(z - t, 0)$ of every filter, then $\max(-z - t, 0)$ of every filter.

    Args:
        channels: of the images, at least 1.
        filters, kernel_size, cells, threshold, seed: as of `RandomConvolutionFeatures`.
        dtype: of images and channels, torch.float32 or torch.float64.
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
        """The channels of every image, shape (n, 2F, cells, cells), of images of shape (n, C, H, W), of type dtype."""
        require_patches(tuple(images.shape), self.weights.shape[1], self.kernel_size, self.cells)
        box = torch.ones_like(self.weights[:1]) / self.weights[0].numel()
        centred = images - images.mean(dim=(1, 2, 3), keepdim=True)  # filters do not see it, and squares lose nothing to it
        mean = nn.functional.conv2d(centred, box)
        spread = (nn.functional.conv2d(centred.square(), box) - mean.square()).clamp_min_(0.0)
        found = nn.functional.conv2d(centred, self.weights) / (spread + _STEADY).sqrt()
        rectified = torch.cat([found - self.threshold, -found - self.threshold], dim=1).clamp_min_(0.0)
        return nn.functional.adaptive_avg_pool2d(rectified, self.cells)


def require_patches(shape: tuple[int, ...], channels: int, kernel_size: int, cells: int) -> None:
    """Refuse images, of shape (n, C, H, W), that have too few patches, or other channels than the filters."""
    least = kernel_size + cells - 1
    if len(shape) != 4 or shape[1] != channels or min(shape[2:]) < least:
        raise InputError(
            f"images: got shape {shape}; kernel_size = {kernel_size} and cells = {cells} need (n, {channels}, H, W) with H and W at least "
            f"{least}.",
            source="the images, and the parameters kernel_size and cells",
            remedy="take smaller kernels or fewer cells, or larger images",
        )

"""Network training besides gradients: noise, proximal steps, and an estimate of curvature.

Everywhere the point is the concatenation of all parameters, unless a group says otherwise.
"""

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.train.core.proximal import NetworkProximal, ProximalGroup
from lethe.train.network.curvature import CurvatureEstimate, estimate_curvature
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise, grid_noise_std

"""Features that need no privacy: each record by itself, by numbers that no record was read for; and whitening, free or paid for.

features = lethe.features.ScatteringFeatures()
model = sklearn.pipeline.make_pipeline(features, lethe.features.PrivateWhitening(features.channels(), epsilon=0.2), ...)
"""

from lethe.estimators import PrivateWhitening
from lethe.estimators.features.public_whitening import PublicWhitening
from lethe.estimators.features.random_convolution_features import RandomConvolutionFeatures
from lethe.estimators.features.random_convolutions2d import RandomConvolutions2d
from lethe.estimators.features.random_fourier import RandomFourierFeatures
from lethe.estimators.features.record_normalizer import RecordNormalizer
from lethe.estimators.features.scattering2d import Scattering2d, ScatteringPath
from lethe.estimators.features.scattering_features import ScatteringFeatures
from lethe.estimators.features.synthetic_images import synthetic_images

__all__ = [
    "PrivateWhitening",
    "PublicWhitening",
    "RandomConvolutionFeatures",
    "RandomConvolutions2d",
    "RandomFourierFeatures",
    "RecordNormalizer",
    "Scattering2d",
    "ScatteringFeatures",
    "ScatteringPath",
    "synthetic_images",
]

"""Features that need no privacy: each record by itself, by numbers that no record was read for; and whitening, free or paid for.

features = lethe.features.ScatteringFeatures()
model = sklearn.pipeline.make_pipeline(features, lethe.features.PrivateWhitening(features.channels(), epsilon=0.2), ...)
"""

from functools import partial

from lethe.errors.names import refuse_old_name
from lethe.estimators import PrivateWhitening
from lethe.estimators.features.images import RandomConvolutionFeatures, ScatteringFeatures
from lethe.estimators.features.record_features import PublicWhitening, RandomFourierFeatures, RecordNormalizer

__all__ = [
    "PrivateWhitening",
    "PublicWhitening",
    "RandomConvolutionFeatures",
    "RandomFourierFeatures",
    "RecordNormalizer",
    "ScatteringFeatures",
]

__getattr__ = partial(refuse_old_name, __name__)

"""Preprocessing: transformers that learn from the data and say what that cost, and one that learns nothing."""

from lethe.estimators.preprocessing.clipper import PrivateQuantileClipper
from lethe.estimators.preprocessing.components import PrivatePCA
from lethe.estimators.preprocessing.private_whitening import PrivateWhitening
from lethe.estimators.preprocessing.public_scaler import PublicScaler
from lethe.estimators.preprocessing.scaler import PrivateStandardScaler
from lethe.estimators.preprocessing.transformer import PrivateTransformer

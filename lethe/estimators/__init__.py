"""Private linear models in scikit-learn's manners: fit, predict, and a certificate of what was released.

model = lethe.estimators.LogisticRegression(epsilon=1.0, feature_norm=1.0).fit(X, y)
model.certificate_, model.epsilon_, print(model.privacy_report_)
"""

import importlib.util

from lethe.errors import MissingExtraError

if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("torch") is None:
    raise MissingExtraError(
        "lethe.estimators needs scikit-learn and PyTorch, which are not both installed.", remedy='pip install "lethe-dp[estimators]"'
    )

from lethe.estimators.base import PrivateLinearModel
from lethe.estimators.choice import NAMES as MECHANISMS
from lethe.estimators.classifiers import LogisticRegression, PrivateClassifier, SoftmaxRegression
from lethe.estimators.heavy_tailed_classifier import HeavyTailedLogisticRegression
from lethe.estimators.heavy_tailed_mean import PrivateMean
from lethe.estimators.heavy_tailed_regressor import HeavyTailedLinearRegression
from lethe.estimators.huber_regressor import HuberRegressor
from lethe.estimators.pipelines import privacy_of, privacy_report_of
from lethe.estimators.preprocessing import PrivatePCA, PrivateQuantileClipper, PrivateStandardScaler, PrivateTransformer, PublicScaler
from lethe.estimators.regressors import LinearRegression, PrivateRegressor, Ridge
from lethe.estimators.selection import PrivateSearch
from lethe.estimators.shares import split_budget
from lethe.estimators.sparse_regressors import ElasticNet, Lasso
from lethe.estimators.svc import LinearSVC

__all__ = [
    "MECHANISMS",
    "ElasticNet",
    "HeavyTailedLinearRegression",
    "HeavyTailedLogisticRegression",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PrivateClassifier",
    "PrivateLinearModel",
    "PrivateMean",
    "PrivatePCA",
    "PrivateQuantileClipper",
    "PrivateRegressor",
    "PrivateSearch",
    "PrivateStandardScaler",
    "PrivateTransformer",
    "PublicScaler",
    "Ridge",
    "SoftmaxRegression",
    "privacy_of",
    "privacy_report_of",
    "split_budget",
]

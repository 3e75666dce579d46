"""Private linear models in scikit-learn's manners: fit, predict, and a certificate of what was released.

model = lethe.estimators.LogisticRegression(epsilon=1.0, feature_norm=1.0).fit(X, y)
model.certificate_, model.epsilon_, print(model.privacy_report_)
"""

import importlib.util
from functools import partial

from lethe.errors import MissingExtraError
from lethe.errors.names import refuse_old_name

if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("torch") is None:
    raise MissingExtraError(
        "lethe.estimators needs scikit-learn and PyTorch, which are not both installed.", remedy='pip install "lethe-dp[estimators]"'
    )

from lethe.estimators.evaluation.describe import Description, describe
from lethe.estimators.evaluation.private_score import PrivateScores, private_score
from lethe.estimators.heavy_tailed.mean import PrivateMean
from lethe.estimators.heavy_tailed.model import HeavyTailedLinearRegression, HeavyTailedLogisticRegression
from lethe.estimators.models.classifiers import LinearSVC, LogisticRegression, SoftmaxRegression
from lethe.estimators.models.huber import HuberRegressor
from lethe.estimators.models.log_link import GammaRegressor, PoissonRegressor, TweedieRegressor
from lethe.estimators.models.regressors import ElasticNet, Lasso, LinearRegression, Ridge
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.callers import known_at_fit as _known_at_fit  # noqa: F401  # every fit asks it
from lethe.estimators.pipelines.privacy import privacy_of, privacy_report_of
from lethe.estimators.pipelines.private_search import PrivateSearch
from lethe.estimators.pipelines.shares import split_budget
from lethe.estimators.preprocessing.data_free import PublicScaler
from lethe.estimators.preprocessing.moments import PrivatePCA, PrivateWhitening
from lethe.estimators.preprocessing.scaler import PrivateQuantileClipper, PrivateStandardScaler

__all__ = [
    "Description",
    "ElasticNet",
    "EstimatorOptions",
    "GammaRegressor",
    "HeavyTailedLinearRegression",
    "HeavyTailedLogisticRegression",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "PrivateMean",
    "PrivatePCA",
    "PrivateQuantileClipper",
    "PrivateScores",
    "PrivateSearch",
    "PrivateStandardScaler",
    "PrivateWhitening",
    "PublicScaler",
    "Ridge",
    "SoftmaxRegression",
    "TweedieRegressor",
    "describe",
    "privacy_of",
    "privacy_report_of",
    "private_score",
    "split_budget",
]

__getattr__ = partial(refuse_old_name, __name__)

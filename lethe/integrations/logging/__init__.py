"""TensorBoard and MLflow as callbacks of `lethe.train.fit` and `PrivacyEngine`: what is public is logged, and nothing else unless asked.

Importing this package loads neither of the two; making a logger does.
"""

from lethe.integrations.logging.mlflow import MLflowLogger
from lethe.integrations.logging.tensorboard import TensorBoardLogger

__all__ = ["MLflowLogger", "TensorBoardLogger"]

"""TensorBoard and MLflow as callbacks of `lethe.train.fit` and `PrivacyEngine`: what is public is logged, and nothing else unless asked.

Importing this package loads neither of the two; making a logger does.
"""

from lethe.integrations.logging.loggers import MLflowLogger, TensorBoardLogger

__all__ = ["MLflowLogger", "TensorBoardLogger"]

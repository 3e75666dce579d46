"""The version, read by the build and by certificates."""

__version__ = "0.1.0"

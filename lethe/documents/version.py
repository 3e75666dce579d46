"""The version of Lethe; the build reads it, and certificates, records and reports print it."""

__version__ = "0.3.0.dev0"

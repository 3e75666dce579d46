"""Solvers that read every record once: clipped, accelerated and proximal SGD, with their settings."""

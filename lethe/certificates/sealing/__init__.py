"""Sealing: what is signed of a release that is no run, and the seals of certificates and statements."""

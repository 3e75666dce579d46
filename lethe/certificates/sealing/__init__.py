"""Sealing: what is signed of a release that is no run, and the seals of certificates and statements."""

from lethe.certificates.sealing.release_record import ReleaseRecord
from lethe.certificates.sealing.seal import Seal, read_seal, seal

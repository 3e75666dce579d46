"""AuditOutcome: a certificate, if there is one, and the audits of the same mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe._version import __version__
from lethe.audit.page import AuditPage
from lethe.certificates.certificate import Certificate

_POINTS = 41
_DECADES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome:
    """The result of `lethe audit`.

    Args:
        page: claim, audits, verdict.
        certificate: what the claim of a run comes from.
    """

    page: AuditPage
    certificate: Certificate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        certificate = None if self.certificate is None else self.certificate.to_dict()
        return {**self.page.to_document(), "certificate": certificate, "lethe": __version__}

    def explained(self) -> str | None:
        """The certificate in words."""
        return None if self.certificate is None else self.certificate.explain()

    def curve(self) -> list[tuple[float, float]]:
        r"""The certified $(\delta, \epsilon(\delta))$ from a ten-thousandth of the certificate's $\delta$ on; empty without one."""
        if self.certificate is None:
            return []
        delta = self.certificate.delta
        # The middle one is the certificate's own.
        deltas = delta * np.logspace(-_DECADES, _DECADES, _POINTS)
        return [(float(each), self.certificate.epsilon_at(float(each), allow_large_delta=True)) for each in deltas if each < 1.0]

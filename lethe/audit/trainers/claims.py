"""A certificate as a claim that can be audited."""

from __future__ import annotations

from lethe.audit.claim import Claim
from lethe.certificates.certificate import Certificate


def claim_of(certificate: Certificate) -> Claim:
    """What a certificate states, without the reasons: those are not a referee's business."""
    run = certificate.run
    large = ", delta >= 1/records" if certificate.large_delta else ""
    return Claim(
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        neighbours=run.neighbours,
        release=run.release,
        source=f"{certificate.theorem}, run {run.run_id}{large}",
    )

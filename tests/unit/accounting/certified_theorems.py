"""What a certificate says of each theorem."""

import lethe


def others_of(certificate: lethe.Certificate) -> dict[str, tuple[str, float | None, str]]:
    return {other.theorem: (other.status, other.epsilon, other.why) for other in certificate.others}


def epsilon_by(certificate: lethe.Certificate, theorem: str) -> float | None:
    return certificate.epsilon if certificate.theorem == theorem else others_of(certificate)[theorem][1]

"""A sealed certificate, and what somebody who holds its file and keys of his own can make of it."""

import base64
import copy
import json
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers import make_run

import lethe
from lethe.certificates.keys import SigningKey
from lethe.certificates.records import HypothesisClaim, Released, TrainingRecord
from lethe.certificates.seal import PAYLOAD_TYPE, Envelope
from lethe.certificates.weights import tensors_digest
from lethe.train.core.training_records import KEPT_WITHIN

DELTA = 1e-3
LOSS = {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"}
WEIGHTS = {"weights": np.arange(6.0).reshape(3, 2), "intercept": np.array([0.5, -0.5])}


def make_record(**changes: Any) -> TrainingRecord:
    fields: dict[str, Any] = {
        "run": make_run(loss=LOSS, precision=lethe.Precision(dtype="float64", parameter_norm=64.0)),
        "by": "lethe.train",
        "enforced": (
            HypothesisClaim("gradient bound", "features are projected"),
            HypothesisClaim("curvature", "features are projected"),
            HypothesisClaim("arithmetic", KEPT_WITHIN),
        ),
        "declared": (HypothesisClaim("start", "at zero"),),
        "released": (Released("weights and intercept", tensors_digest(WEIGHTS)),),
    }
    return TrainingRecord(**{**fields, **changes})


def sealed_content(**changes: Any) -> dict[str, Any]:
    """A certificate with a seal of this installation's key, as JSON has it."""
    return json.loads(json.dumps(lethe.certify(make_record(**changes), DELTA).to_dict()))


def stranger() -> SigningKey:
    """Anybody's key: one is made in no time."""
    return SigningKey(Ed25519PrivateKey.generate(), "a stranger's key")


def statement_of(content: dict[str, Any]) -> dict[str, Any]:
    return json.loads(base64.b64decode(content["seal"]["payload"]))


def with_statement(content: dict[str, Any], statement: object, key: SigningKey | None = None) -> dict[str, Any]:
    """The certificate with another statement in its seal: signed by `key`, or under the old signature."""
    changed, payload = copy.deepcopy(content), json.dumps(statement).encode()
    if key is not None:
        changed["seal"] = Envelope.of(payload, key).to_dict()
    else:
        changed["seal"]["payload"] = base64.b64encode(payload).decode()
    assert changed["seal"]["payloadType"] == PAYLOAD_TYPE
    return changed


def evidence(certificate: lethe.Certificate) -> dict[str, str]:
    return {finding.name: finding.evidence for finding in certificate.findings}


def private_pem(key: Any) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

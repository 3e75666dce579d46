"""`lethe verify` and `lethe key`: whether a certificate holds, whose it is, and the key by which others can tell that it is yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.accounting.verify import verify as verify_certificate
from lethe.certificates.signing.keys import signing_key
from lethe.cli.console import AllowLargeDelta, AsJson, Quiet, print_tables, working
from lethe.cli.gate import SHUT, MaxEpsilon, require_limit
from lethe.documents.strict import require_place, to_json, write_bytes
from lethe.report.verification_table import verification_table

KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The public key, in PEM, of who must have sealed it; default: this installation's.")
]


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="A certificate, a statement or a total: .json.")],
    weights: Annotated[
        Path | None, typer.Option("--weights", help="The released weights: .npz, .pt, .pth or .safetensors; nothing in them is executed.")
    ] = None,
    key: KeyFile = None,
    max_epsilon: MaxEpsilon = None,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Answer yes or no: does CERTIFICATE follow from its run, who sealed it, does it belong to these weights? Exit status 1 for any no.

    Such as: lethe verify trained/certificate.json --weights trained/weights.npz --max-epsilon 10
    """
    require_limit(max_epsilon)
    with working("checking", quiet):
        found = verify_certificate(certificate, weights=weights, key=key, max_epsilon=max_epsilon, allow_large_delta=allow_large_delta)
    if as_json:
        print(to_json(found.to_dict()), end="")
    else:
        print_tables([verification_table((one.question, one.yes, one.why) for one in found.answers)])
        for line in found.declared:
            print(f"declared, and proved by nothing: {line}")
        if found.note:
            print(found.note)
    if not found.yes:
        raise typer.Exit(SHUT)


def key(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this new .pem file instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the public key that this installation seals certificates with: give it to those who are to verify them.

    Such as: lethe key -o mine.pem
    """
    if output is not None:
        require_place(output, ".pem")
    public = signing_key().public
    if output is not None:
        write_bytes(output, public.pem().encode())
    if as_json:
        print(to_json({"fingerprint": public.fingerprint, "pem": public.pem()}), end="")
    elif output is None:
        print(public.pem(), end="")
    else:
        print(f"{public.fingerprint}: {output}")

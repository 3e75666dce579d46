"""The commands on certificates: `explain`, `verify`, `total`, `report`, and `key`, which prints the public key of your seals.

app.py adds the verbs; each reads files of certificates or statements and calls `lethe.verify`, `lethe.total` or `lethe.report`.
"""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lethe.accounting.recheck import recheck, recheck_statement, words_differ
from lethe.accounting.totals import total as total_of
from lethe.accounting.verify import load
from lethe.accounting.verify import verify as verify_certificate
from lethe.certificates.certificate import Certificate
from lethe.certificates.keys import PublicKey, signing_key
from lethe.certificates.statement import Statement
from lethe.cli.console import (
    SHUT,
    AllowLargeDelta,
    AsJson,
    KeyFile,
    MaxEpsilon,
    ProofFile,
    Quiet,
    file_option,
    gate,
    print_json,
    print_tables,
    say,
    working,
)
from lethe.documents.strict import DOCUMENTS, require_place, write_bytes
from lethe.errors import InputError
from lethe.report.sections.build import answers_table, document_of
from lethe.report.sections.evidence import total_blocks
from lethe.report.subject import described, subject_of, with_extras
from lethe.report.tables import terminal
from lethe.report.writing import FORMATS, content, written

_DECLARED = "declared, and proved by nothing: "


def explain(
    certificate: ProofFile,
    key: KeyFile = None,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Also say why each other theorem was not used.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say in words what CERTIFICATE proves and from what; refuse one that does not follow from its run.

    Such as: lethe explain certificate.json
    """
    with working("checking", quiet):
        loaded = load(certificate, key=None if key is None else PublicKey.load(key))
        rechecked = recheck(loaded) if isinstance(loaded, Certificate) else loaded
        if isinstance(rechecked, Statement):
            rechecked = recheck_statement(rechecked).statement
    if isinstance(loaded, Certificate) and isinstance(rechecked, Certificate) and (note := words_differ(loaded, rechecked)):
        say(note)
    if as_json:
        print_json(rechecked.to_dict())
    else:
        print(rechecked.explain(every=every) if isinstance(rechecked, Certificate) else rechecked.explain())
        print()
        print(rechecked.cite())
    # Of a statement without a delta: whether anything is proved at all.
    gate(rechecked.guarantee.epsilon(rechecked.target_delta or 0.5) if isinstance(rechecked, Statement) else rechecked.epsilon)


def verify(
    certificate: ProofFile,
    weights: Annotated[
        Path | None, typer.Option(help="The released weights: .npz, .pt, .pth or .safetensors; nothing in them is executed.")
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
    with working("checking", quiet):
        verification = verify_certificate(
            certificate, weights=weights, key=key, max_epsilon=max_epsilon, allow_large_delta=allow_large_delta
        )
    if as_json:
        print_json(verification.to_dict())
    else:
        print_tables(terminal([answers_table(verification.answers)]))
        for line in (*(f"{_DECLARED}{line}" for line in verification.declared), *([verification.note] if verification.note else [])):
            print(line)
    if not verification.yes:
        raise typer.Exit(SHUT)


def total(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Certificates, statements, totals or guarantees: .json; of one relation.")
    ],
    delta: Annotated[float | None, typer.Option(help="The delta of (epsilon, delta)-DP, in (0, 1), below 1/records.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Instead of --delta: print the delta at this epsilon.")] = None,
    count: Annotated[
        list[int] | None, typer.Option(help="How many independent releases like FILE there are; once for each FILE, in their order.")
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option("--neighbours", "--neighbors", help="replace_one, zero_out or add_or_remove: of guarantees, which do not say it."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="record or user: what guarantees are about, which do not say it.")] = None,
    key: KeyFile = None,
    max_epsilon: MaxEpsilon = None,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, file_option("Also write the total to this .json file.", *DOCUMENTS)] = None,
    quiet: Quiet = False,
) -> None:
    """Print what all FILEs cost together; exit status 1 if nothing is proved, or more than --max-epsilon.

    Such as: lethe total model.json statistics.json --delta 1e-6
    """
    if (delta is None) == (epsilon is None):
        raise InputError("--delta, --epsilon: it needs one of the two.", remedy="write --delta 1e-6, or --epsilon 1 for the delta at it.")
    counts = [1] * len(files) if count is None else count
    if len(counts) != len(files):
        raise InputError(
            f"--count: given {len(counts)} times for {len(files)} files.",
            remedy="give it once for each file, in their order: --count 1 --count 3.",
        )
    with working("adding", quiet):
        composed = total_of(
            list(zip(map(str, files), counts, strict=True)),
            delta,
            epsilon=epsilon,
            neighbours=neighbours,  # pyright: ignore[reportArgumentType]  # refused there by name
            unit=unit,  # pyright: ignore[reportArgumentType]  # as neighbours
            key=key,
            allow_large_delta=allow_large_delta,
        )
    if output is not None:
        composed.save(output)
    if as_json:
        print_json(composed.to_dict())
    else:
        print_tables([*terminal(total_blocks(composed)), *(Text(f"{_DECLARED}{line}") for line in composed.declared)])
    if composed.asked == "epsilon" and composed.large_delta and not allow_large_delta:
        say(f"lethe: delta = {composed.delta:g} is 1/records or more: it promises nothing.", "red")
        raise typer.Exit(SHUT)
    gate(math.inf if composed.not_private else composed.epsilon, max_epsilon)


def report(
    subject: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_CERTIFICATE_OR_FOLDER", help="A run, a certificate, statement or total, or a folder that `lethe train` wrote."
        ),
    ],
    output: Annotated[Path | None, file_option("The file: .html, .md, .tex or .json; default: report.html.", *FORMATS)] = None,
    purpose: Annotated[str | None, typer.Option(help="What it was trained for: the title; default: that of the configuration.")] = None,
    data_set: Annotated[str | None, typer.Option(help="The name of the data set; default: the file's.")] = None,
    by: Annotated[str | None, typer.Option(help="Who ran it; default: that of the configuration.")] = None,
    delta: Annotated[float | None, typer.Option(help="Of a run, which has none: in (0, 1), and below 1/records.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The released weights, to be held against the seal; default: those in the folder.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Also show, marked, what no guarantee covers. Do not publish such a report.")
    ] = False,
    key: KeyFile = None,
    allow_large_delta: AllowLargeDelta = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a report that says what is promised, to whom, on what it rests and what voids it; exit status 1 for NOT PRIVATE.

    Such as: lethe report run.yaml --delta 1e-6 -o report.html
    """
    if output is None and not as_json:
        output = Path("report.html")
        require_place(output, *FORMATS)
    with working("writing the report", quiet):
        believed = None if key is None else PublicKey.load(key)
        described_subject = subject_of(subject, delta=delta, key=believed, allow_large_delta=allow_large_delta, weights=weights)
        described_subject = with_extras(described(described_subject, purpose=purpose, data_set=data_set, by=by), show_private=private)
        if output is not None:
            write_bytes(output, written(described_subject, output.suffix.lower()).encode())
    if as_json:
        print_json(content(document_of(described_subject)))
    else:
        print(f"report: {output}")
    gate(described_subject.epsilon)
    if any(page.failed for page in described_subject.audits):
        say("lethe: an audit beside it says that the claim is false, or is void.", "red")
        raise typer.Exit(SHUT)


def key(
    output: Annotated[Path | None, file_option("Write it to this new .pem file instead.", ".pem")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the public key that this installation seals certificates with: give it to those who are to verify them.

    Such as: lethe key -o mine.pem
    """
    public = signing_key().public
    if output is not None:
        write_bytes(output, public.pem().encode())
    if as_json:
        print_json({"fingerprint": public.fingerprint, "pem": public.pem()})
    elif output is None:
        print(public.pem(), end="")
    else:
        print(f"{public.fingerprint}: {output}")

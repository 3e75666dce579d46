"""The certificate on a model card: in its metadata, and in words below."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, cast

import yaml

import lethe.report
from lethe.certificates.certificate import Certificate
from lethe.documents.strict import write_bytes

_HEAD = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", flags=re.DOTALL)
_BEGIN, _END = "<!-- lethe: begin -->", "<!-- lethe: end -->"
_OURS = re.compile(f"\n*{_BEGIN}.*?{_END}\n*", flags=re.DOTALL)


def add_certificate(card: Path, certificate: Certificate) -> None:
    """Write a certificate into a model card; one that is there from before is replaced.

    Args:
        card: a README.md, with metadata or without.
        certificate: of the model.
    Raises:
        InputError: the certificate does not follow from its run.
        LetheError: the card cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        lethe.report.write(certificate, Path(folder) / "report.md")
        ours, words = _parted((Path(folder) / "report.md").read_text())
    theirs, body = _parted(card.read_text() if card.exists() else "")
    tags = list(dict.fromkeys([*_tags(theirs), *_tags(ours)]))
    head = {**theirs, "tags": tags, "differential_privacy": ours["differential_privacy"]}
    metadata = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    kept = _OURS.sub("\n", body).rstrip()
    write_bytes(card, f"---\n{metadata}---\n{kept}\n\n{_BEGIN}\n{words.strip()}\n{_END}\n".encode())


def _parted(text: str) -> tuple[dict[str, Any], str]:
    found = _HEAD.match(text)
    if found is None:
        return {}, text
    head: Any = yaml.safe_load(found[1])
    return (cast(dict[str, Any], head), found[2]) if isinstance(head, dict) else ({}, found[2])


def _tags(head: dict[str, Any]) -> list[str]:
    tags: Any = head.get("tags") or []
    return [tags] if isinstance(tags, str) else [str(tag) for tag in cast(list[Any], tags)]

"""Documents as bytes, and facts as rows whose checksums form a chain."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from gavel.journal.errors import CorruptJournalError
from gavel.journal.tables import ANY_JOB

Document = Mapping[str, Any]

COMPRESS_FROM = 1024
"""In bytes; shorter documents gain little."""
WIDE = 32
"""A fact that names more jobs than this is indexed once, not once per job."""
_GROUP = 64
_HEAD = struct.Struct(">qqd")


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact."""

    number: int
    time: float
    kind: str
    document: Document


@dataclass(frozen=True, slots=True)
class Head:
    """The last fact of a journal: its number, its checksum and its time."""

    number: int
    checksum: bytes
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class FactBatch:
    """Facts as rows that continue the chain from one head to the next."""

    facts: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    after: Head


def batch(documents: Sequence[Document], head: Head, term: int) -> FactBatch:
    """The rows of new facts, written in that term after that head."""
    facts, jobs = [], []
    for document in documents:
        row = _row(document, head, term)
        named = jobs_of(document)
        jobs += [{"job": job, "number": row["number"]} for job in (named if len(named) <= WIDE else [ANY_JOB])]
        facts.append(row)
        head = Head(row["number"], row["checksum"], row["time"])
    return FactBatch(facts, jobs, head)


def _row(document: Document, head: Head, term: int) -> dict[str, Any]:
    number, time = head.number + 1, float(document["time"])
    if not math.isfinite(time):
        raise ValueError(f"a fact's time must be finite, not {time}")
    kind, server, body = column(document["kind"]), server_of(document), encode(document)
    checksum = link(head.checksum, number, term, time, kind, server, body)
    return {
        "number": number,
        "term": term,
        "time": time,
        "kind": kind,
        "server": server,
        "checksum": checksum,
        "document": body,
    }


def link(previous: bytes, number: int, term: int, time: float, kind: str, server: str | None, body: bytes) -> bytes:
    """The checksum of a fact, which also covers all facts before it."""
    names = f"{kind}\0{'' if server is None else '=' + server}\0".encode()
    return blake2b(b"".join((previous, _HEAD.pack(number, term, time), names, body)), digest_size=8).digest()


def seed(cluster: str) -> bytes:
    """The start of a cluster's chain of facts."""
    return checksum("facts of", cluster)


def checksum(*parts: object) -> bytes:
    """A checksum of numbers, texts and bytes that keeps them distinct."""
    digest = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def jobs_of(document: Document) -> list[str]:
    """The ids of the jobs that a fact names, each once."""
    job, jobs = document.get("job"), document.get("jobs")
    single = [] if job is None else [job]
    return list(dict.fromkeys(column(str(name)) for name in (*single, *(jobs or ()))))


def server_of(document: Document) -> str | None:
    """The server that a fact names."""
    server = document.get("server")
    return None if server is None else column(str(server))


def column(text: str) -> str:
    """Text in a form that both databases can store; the document keeps the original."""
    if text.isascii() and "\0" not in text:
        return str(text)  # enum members are read back as plain text, and checksums must match
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def encode(document: Document) -> bytes:
    """A document as bytes: JSON, compressed if it is long."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    return zlib.compress(text) if len(text) > COMPRESS_FROM else text


def encode_long(document: Document) -> bytes:
    """The same for documents of many megabytes, in pieces, so that other threads can run in between."""
    packer = zlib.compressobj(1)
    return b"".join([packer.compress(piece.encode()) for piece in _pieces(document, depth=2)] + [packer.flush()])


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if depth and isinstance(value, Mapping):
        yield "{"
        for index, (key, item) in enumerate(value.items()):
            yield f"{',' if index else ''}{json.dumps(str(key))}:"
            yield from _pieces(item, depth - 1)
        yield "}"
    elif isinstance(value, list | tuple) and len(value) > _GROUP:
        for start in range(0, len(value), _GROUP):
            yield ("," if start else "[") + _json(value[start : start + _GROUP])[1:-1]
        yield "]"
    else:
        yield _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def decode(body: bytes, what: str) -> dict[str, Any]:
    """Decode a document; `what` names it in the error if it is damaged."""
    try:
        text = body if body[:1] == b"{" else zlib.decompress(body)
        document: dict[str, Any] = json.loads(text)
    except (ValueError, zlib.error) as error:
        raise CorruptJournalError(f"{what} cannot be read: {error}") from error
    return document

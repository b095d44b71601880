"""The bundle: one analysis with all its questions and answers, as one file.

A bundle is gzip. Its first line is a JSON object with the format, its version and the SHA-256 of the rest,
which is one JSON document. Bundles come from other people, so their content is bounded, checked and never
executed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from worker.domain.values.errors import ReportedError

FORMAT, VERSION = "rca-bundle", 1
MAX_BYTES = 64 * 1024 * 1024
"""The most bytes that a bundle may unpack to."""
GZIP = 16 + zlib.MAX_WBITS


class BundleError(ReportedError):
    """A file is not a bundle that this version can replay. The message says why and what to do."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RecordedCall(_Model):
    """One question to a port, and its answer or error.

    `call` is the port and the method (`cluster.get`). `asked` and `answer` are JSON as text. `error` is the
    type of the exception with its fields. If it has neither, the answer was too large to keep.
    """

    call: str
    asked: str
    answer: str | None = None
    error: dict[str, Any] | None = None


class SavedStep(_Model):
    """A step of the journal from which the recorded run continued. `data` is UTF-8 text."""

    kind: str
    run: str
    data: str = ""
    notes: dict[str, Any] = {}


class Versions(_Model):
    """The versions of the parts.

    `catalog` is a digest of the answers of the catalog, which tells two catalogs apart.
    """

    program: str = ""
    prompt: str = ""
    model: str = ""
    shadow: str = ""
    catalog: str = ""


class Bundle(_Model):
    """One recorded analysis, redacted.

    `request` is the accepted request and `digest` that of the original, which a redacted one does not have.
    `ports` are those that were configured. Times of the clock and random texts are exchanges, too. `result`
    is the result as it was published.
    """

    key: str
    kind: str
    request: dict[str, Any]
    digest: str
    lane: str
    notes: tuple[str, ...] = ()
    rules: dict[str, Any]
    versions: Versions
    ports: tuple[str, ...]
    steps: tuple[SavedStep, ...] = ()
    exchanges: tuple[RecordedCall, ...] = ()
    result: str

    @property
    def left_out(self) -> int:
        """How many answers were too large to keep."""
        return sum(each.answer is None and each.error is None for each in self.exchanges)


def encode(bundle: Bundle) -> bytes:
    """The bytes of a file. The same bundle has the same bytes."""
    body = json.dumps(bundle.model_dump(mode="json"), separators=(",", ":")).encode()
    head = {"format": FORMAT, "version": VERSION, "sha256": hashlib.sha256(body).hexdigest()}
    packer = zlib.compressobj(wbits=GZIP)
    return packer.compress(json.dumps(head).encode() + b"\n" + body) + packer.flush()


def encode_within(bundle: Bundle, limit: int) -> bytes:
    """The bytes of a file of at most `limit` bytes: the largest answers are left out until it fits."""
    while len(data := encode(bundle)) > limit:
        sizes = [len(each.answer or "") for each in bundle.exchanges]
        if not any(sizes):
            break
        cut = max(sizes) // 2
        bundle = bundle.model_copy(
            update={
                "exchanges": tuple(
                    each.model_copy(update={"answer": None}) if size > cut else each
                    for each, size in zip(bundle.exchanges, sizes, strict=True)
                )
            }
        )
    return data


def decode(data: bytes, where: str) -> Bundle:
    """The bundle in a file; `where` names it in messages. Raises BundleError."""
    head, body = _unpacked(data, where)
    try:
        header = json.loads(head)
        known = header["format"] == FORMAT
        version, digest = header["version"], header["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        known, version, digest = False, 0, ""
    if not known:
        raise BundleError(f"{where} is not a recording: `rca record KEY -o FILE` writes one")
    if version != VERSION:
        raise BundleError(
            f"{where} has version {str(version)[:20]!r} of the format, and this program reads version {VERSION}: update rca-worker, or "
            "use the version that recorded it"
        )
    if hashlib.sha256(body).hexdigest() != digest:
        raise BundleError(f"{where} is damaged: its content does not match its digest; get it again")
    try:
        return Bundle.model_validate(json.loads(body))
    except (ValidationError, ValueError, RecursionError) as e:
        raise BundleError(f"{where} is not a recording that can be replayed: {str(e).splitlines()[0]}") from e


def _unpacked(data: bytes, where: str) -> tuple[bytes, bytes]:
    """The first line and the rest."""
    unpacker = zlib.decompressobj(wbits=GZIP)
    try:
        text = unpacker.decompress(data, MAX_BYTES)
    except zlib.error:
        return b"", b""  # not gzip at all
    if unpacker.unconsumed_tail:
        raise BundleError(f"{where} unpacks to more than {MAX_BYTES} bytes, so it is not read")
    if text and not unpacker.eof:
        raise BundleError(f"{where} is damaged: its end is missing; get it again")
    head, _, body = text.partition(b"\n")
    return head, body

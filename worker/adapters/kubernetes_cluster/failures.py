"""Translates answers of the API server that are not 200 into ClusterErrors."""

from __future__ import annotations

import re
from typing import Any

from worker.domain.cluster.fields import dig, mapping, meta
from worker.domain.values.errors import ClusterError, ClusterReason, network_reason
from worker.domain.values.json_read import read_json

MAX_MESSAGE_CHARS = 300
FORBIDDEN = {401, 403}
CALLERS_FAULT = {400, 405, 406, 413, 414, 415, 422}
NOT_SERVED = b"404 page not found"


class ExpiredListError(ClusterError):
    """410: the snapshot behind the pages of a list is gone.

    `token` continues with the present state, if there is one.
    """

    def __init__(self, message: str, token: str) -> None:
        super().__init__(ClusterReason.UNAVAILABLE, message)
        self.token = token


def failure_of(status: int, body: bytes) -> ClusterError:
    """The error behind a status code and a body, which is a Status object when the API server wrote it.

    Only a Status object that names the object proves that it does not exist, because any proxy can answer
    404.
    """
    document = _status_object(body)
    start = re.sub(r"<[^<>]*>", " ", body[:400].decode("utf-8", "replace"))  # of a page of HTML or text
    foreign = f"{status} from a server that is not a Kubernetes API server: {start}"
    message = short(str(document.get("message") or foreign))
    if status == 404:
        return _not_found(document, body, message)
    if status == 410:
        return ExpiredListError(message, str(meta(document).get("continue") or ""))
    if status in FORBIDDEN:
        return ClusterError(ClusterReason.FORBIDDEN, message)
    if status in CALLERS_FAULT and document:
        return ClusterError(ClusterReason.BAD_REQUEST, message)
    return ClusterError(ClusterReason.UNAVAILABLE, message)


def unavailable(what: str, error: BaseException) -> ClusterError:
    """A failure of the transport or of the configuration."""
    why = network_reason(error) or type(error).__name__
    return ClusterError(ClusterReason.UNAVAILABLE, short(f"{what} ({why}): {error}"))


def short(text: str) -> str:
    """Text from outside as one line of at most 300 characters without control characters."""
    start = text[: 4 * MAX_MESSAGE_CHARS]
    line = " ".join("".join(char if char.isprintable() else " " for char in start).split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _not_found(document: dict[str, Any], body: bytes, message: str) -> ClusterError:
    if dig(document, "details", "name"):
        return ClusterError(ClusterReason.NOT_FOUND, message)
    if document or body.strip() == NOT_SERVED:
        return ClusterError(ClusterReason.UNKNOWN_KIND, "the cluster does not serve this resource")
    return ClusterError(ClusterReason.UNAVAILABLE, message)


def _status_object(body: bytes) -> dict[str, Any]:
    document = mapping(read_json(body))
    return document if document.get("kind") == "Status" else {}

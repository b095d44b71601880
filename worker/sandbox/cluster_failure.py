"""Failures as the Kubernetes API reports them: a Status object and its HTTP status code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiFailure(Exception):  # noqa: N818 - what the API answers, not a fault of the program
    """An answer that is not 2xx. `details` are the Status object's own."""

    def __init__(self, code: int, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    @property
    def body(self) -> dict[str, Any]:
        """The Status object as JSON."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": REASONS.get(self.code, "Unknown"),
            "details": self.details,
            "code": self.code,
        }


def bad_request(message: str) -> ApiFailure:
    """A mistake of the caller."""
    return ApiFailure(400, message)


def no_such_resource() -> ApiFailure:
    """The group version is served, but not the resource."""
    return ApiFailure(404, "the server could not find the requested resource")

"""Test vectors for the encoding of keys, for other languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.subjects import Subjects, history_key, kv_key, request_key
from schemas.taxonomy import RequestKind

KEYS: Final = (
    ("rr-1", None),
    ("rr-1", 2),
    ("shop.checkout/1", None),
    ("rr.*.>.x y", None),
    ("50%=half", None),
    ("größe", 12),
    ("測試", None),
    ("🔥", None),
    ("_A-z09", None),
)


def key_vectors() -> dict[str, Any]:
    """How ids become keys. In subjects `%XX`, in keys of key-value buckets `=XX`; upper-case hexadecimal digits."""
    subjects = Subjects()

    def vector(remediation_id: str, attempt: int | None) -> dict[str, Any]:
        key = request_key(remediation_id, attempt)
        kind = RequestKind.INCIDENT if attempt is None else RequestKind.RECOVERY
        return {
            "remediation_id": remediation_id,
            "recovery_attempt_number": attempt,
            "request_key": key,
            "result_subject": subjects.result(kind, key),
            "kv_key": kv_key(key),
        }

    resource: Mapping[str, str] = {"kind": "Deployment", "namespace": "shop", "name": "checkout"}
    return {
        "request_keys": [vector(remediation_id, attempt) for remediation_id, attempt in KEYS],
        "history_keys": [{**resource, "key": history_key(**resource)}],
    }

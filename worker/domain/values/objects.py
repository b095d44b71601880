"""Names of Kubernetes objects, and queries about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]
"""One Kubernetes object as the API returns it (JSON)."""

# "Object Names and IDs": a name is at least a valid path segment; real ones hold no more than this (RBAC uses
# colons).
OBJECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object. `namespace` is empty for cluster scope; `api_version` and `uid` are empty if unknown."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """`Pod shop/api-0`, or `Node worker-1`: how objects are named in prompts, evidence and messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def home(self) -> str:
        """The namespace it is in, of a Namespace itself; empty for cluster scope."""
        return self.name if self.kind == "Namespace" else self.namespace

    def same_as(self, other: ObjectRef) -> bool:
        """True if both name the same object, ignoring parts that either does not know."""
        return (
            self.kind.lower() == other.kind.lower()
            and self.name == other.name
            and self.namespace == other.namespace
            and (not self.uid or not other.uid or self.uid == other.uid)
        )


@dataclass(frozen=True, slots=True)
class KindInfo:
    """A kind as discovery knows it: `api_version` is `v1` or `<group>/<version>`."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool


Keep = Callable[[Manifest], Manifest | None] | None
"""The parts to keep of each object of a list, None for no part; without it, whole objects are kept."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Objects of one kind. An empty namespace means all namespaces; selectors are in the API's own syntax.

    `keep` sees the objects page by page, so that a long list does not have to be held as a whole.
    """

    kind: str
    namespace: str = ""
    api_version: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 500
    keep: Keep = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of a list. Each item has `kind` and `apiVersion` filled in (the API leaves them out)."""

    items: tuple[Manifest, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The tail of one container's log. `limit_bytes` bounds what is loaded, whatever the log holds."""

    namespace: str
    pod: str
    container: str
    previous: bool = False
    tail_lines: int = 200
    limit_bytes: int = 256 * 1024
    since_seconds: int | None = None

"""Paths of the Kubernetes API.

Names come from a model or a message, so none may leave its segment of the path.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import OBJECT_NAME, KindInfo

LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
GROUP = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def collection_path(info: KindInfo, namespace: str) -> str:
    """All objects of a kind; an empty namespace means all of them. Raises ClusterError BAD_REQUEST."""
    path = version_path(info.api_version)
    if info.namespaced and namespace:
        path += f"/namespaces/{_checked(LABEL, namespace, 'namespace')}"
    return f"{path}/{_checked(LABEL, info.plural, 'resource')}"


def object_path(info: KindInfo, namespace: str, name: str) -> str:
    """One object; the namespace is left out for cluster scope. Raises ClusterError BAD_REQUEST."""
    if info.namespaced and not namespace:
        raise ClusterError(ClusterReason.BAD_REQUEST, f"{info.kind} is a namespaced kind: name a namespace")
    return f"{collection_path(info, namespace)}/{_checked(OBJECT_NAME, name, 'name')}"


def version_path(api_version: str) -> str:
    """The group version: `v1` or `<group>/<version>`. Raises ClusterError BAD_REQUEST."""
    group, slash, version = api_version.rpartition("/")
    checked = _checked(LABEL, version, "API version")
    return f"/apis/{_checked(GROUP, group, 'API group')}/{checked}" if slash else f"/api/{checked}"


def container_name(name: str) -> str:
    """The name of a container, unchanged. Raises ClusterError BAD_REQUEST."""
    return _checked(LABEL, name, "container")


def group_path(group: str) -> str:
    """A named API group. Raises ClusterError BAD_REQUEST."""
    return f"/apis/{_checked(GROUP, group, 'API group')}"


def _checked(rule: re.Pattern[str], text: str, what: str) -> str:
    if not rule.fullmatch(text):
        raise ClusterError(ClusterReason.BAD_REQUEST, f"not a valid {what}: {text[:80]!r}")
    return quote(text, safe="")

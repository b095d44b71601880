"""Container logs as the API server and the kubelet serve them, errors included.

Rules and wordings are those of the pod log subresource (API server: choice of the container; kubelet: which
container instance has a log). Lines of a snapshot carry no times, so `sinceSeconds` cannot cut them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure, bad_request

SPEC_LISTS = ("containers", "initContainers", "ephemeralContainers")
STATUS_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
PULL_FAILURES = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Query of the log subresource. None leaves out a bound."""

    container: str = ""
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None


def container_of(pod: Manifest, wanted: str) -> str:
    """The container whose log is meant: the only one, or the one that is named. Raises ApiFailure 400."""
    specs = {field: _named(pod, "spec", field) for field in SPEC_LISTS}
    names = {field: [str(spec.get("name")) for spec in found] for field, found in specs.items()}
    pod_name = pod["metadata"]["name"]
    if wanted:
        if not any(wanted in listed for listed in names.values()):
            raise bad_request(f"container {wanted} is not valid for pod {pod_name}")
        return wanted
    main = names["containers"]
    if len(main) == 1:
        return main[0]
    message = f"a container name must be specified for pod {pod_name}"
    if main:
        message += f", choose one of: [{' '.join(main)}]"
    if names["initContainers"]:
        message += f" or one of the init containers: [{' '.join(names['initContainers'])}]"
    raise bad_request(message)


def instance_without_log(pod: Manifest, container: str, *, previous: bool) -> ApiFailure | None:
    """Why this container instance has no log; None if it has one, even an empty one."""
    name = pod["metadata"]["name"]
    status = _status_of(pod, container)
    if status is None:
        return bad_request(f'container "{container}" in pod "{name}" is not available')
    state, last = _part(status, "state"), _part(_part(status, "lastState"), "terminated")
    if previous and not last.get("containerID"):
        return bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if "running" in state and not previous:
        return None
    waiting = _part(state, "waiting")
    if not previous and not last and "terminated" not in state:
        reason = str(waiting.get("reason") or "")
        text = PULL_FAILURES.get(reason, reason)
        ending = f": {text}" if text else " - no logs yet"
        return bad_request(f'container "{container}" in pod "{name}" is waiting to start{ending}')
    ended = _part(state, "terminated") if "terminated" in state and not previous else last
    return bad_request(f"unable to retrieve container logs for {ended.get('containerID') or container}")


def shares_log(pod: Manifest, container: str) -> bool:
    """True if current and previous are the same instance: it has ended and the next one has not started."""
    state = _part(_status_of(pod, container) or {}, "state")
    return "running" not in state and "terminated" not in state


def cut(text: bytes, options: LogOptions) -> bytes:
    """First `tail_lines` from the end, then `limit_bytes` from the start of those, as the kubelet does."""
    if options.tail_lines is not None:
        text = _tail(text, options.tail_lines)
    return text if options.limit_bytes is None else text[: options.limit_bytes]


def _tail(text: bytes, lines: int) -> bytes:
    if lines <= 0:
        return b""
    at = len(text) - 1 if text.endswith(b"\n") else len(text)
    for _ in range(lines):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


def _part(parent: dict[str, Any], name: str) -> dict[str, Any]:
    return mapping(parent.get(name))


def _named(pod: Manifest, parent: str, field: str) -> list[dict[str, Any]]:
    return mappings(dig(pod, parent, field))


def _status_of(pod: Manifest, container: str) -> dict[str, Any] | None:
    statuses = (status for field in STATUS_LISTS for status in _named(pod, "status", field))
    return next((status for status in statuses if status.get("name") == container), None)

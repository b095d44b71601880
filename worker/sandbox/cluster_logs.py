"""Container logs as the API server and the kubelet serve them, errors included.

Rules and wordings are those of the pod log subresource (API server: choice of the container; kubelet: which
container instance has a log). Lines of a snapshot carry no times, so `sinceSeconds` cannot cut them.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.domain.cluster.pods import Container, containers
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure, bad_request

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
    specified = [part for part in containers(pod) if part.spec]
    pod_name = pod["metadata"]["name"]
    if wanted:
        if wanted not in [part.name for part in specified]:
            raise bad_request(f"container {wanted} is not valid for pod {pod_name}")
        return wanted
    main = [part.name for part in specified if part.kind == "app"]
    if len(main) == 1:
        return main[0]
    message = f"a container name must be specified for pod {pod_name}"
    if main:
        message += f", choose one of: [{' '.join(main)}]"
    if inits := [part.name for part in specified if part.kind in {"init", "sidecar"}]:
        message += f" or one of the init containers: [{' '.join(inits)}]"
    raise bad_request(message)


def instance_without_log(pod: Manifest, container: str, *, previous: bool) -> ApiFailure | None:
    """Why this container instance has no log; None if it has one, even an empty one."""
    name = pod["metadata"]["name"]
    found = _with_status(pod, container)
    if found is None:
        return bad_request(f'container "{container}" in pod "{name}" is not available')
    if previous and not found.last.get("containerID"):
        return bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if found.running and not previous:
        return None
    if not previous and not found.last and not found.terminated:
        reason = str(found.waiting.get("reason") or "")
        text = PULL_FAILURES.get(reason, reason)
        ending = f": {text}" if text else " - no logs yet"
        return bad_request(f'container "{container}" in pod "{name}" is waiting to start{ending}')
    ended = found.last if previous or not found.terminated else found.terminated
    return bad_request(f"unable to retrieve container logs for {ended.get('containerID') or container}")


def shares_log(pod: Manifest, container: str) -> bool:
    """True if current and previous are the same instance: it has ended and the next one has not started."""
    found = _with_status(pod, container)
    return found is None or not (found.running or found.terminated)


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


def _with_status(pod: Manifest, name: str) -> Container | None:
    return next((part for part in containers(pod) if part.name == name and part.status), None)

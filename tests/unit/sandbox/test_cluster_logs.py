from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure
from worker.sandbox.cluster_logs import LogOptions, cut
from worker.sandbox.cluster_store import Snapshot

RUNNING = {"running": {"startedAt": "2026-05-01T10:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1, "containerID": "containerd://1"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
Logs = dict[tuple[str, str, str, bool], bytes]


def _pod(state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    statuses = [{"name": "app", "state": state, "lastState": last or {}}] if state is not None else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "api-0", "namespace": "shop"},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "app"}], **spec},
        "status": {"containerStatuses": statuses},
    }


def _read(pod: Manifest, logs: Logs | None = None, **options: Any) -> bytes:
    return Snapshot([pod], dict(logs or {})).log("shop", "api-0", LogOptions(**options))


def _refusal(pod: Manifest, logs: Logs | None = None, **options: Any) -> str:
    with pytest.raises(ApiFailure) as caught:
        _read(pod, logs, **options)
    assert caught.value.code == 400
    return caught.value.message


CURRENT, PREVIOUS = ("shop", "api-0", "app", False), ("shop", "api-0", "app", True)


def test_current_and_previous_of_a_running_container() -> None:
    logs = {CURRENT: b"now\n", PREVIOUS: b"then\n"}
    assert _read(_pod(RUNNING, ENDED), logs) == b"now\n"
    assert _read(_pod(RUNNING, ENDED), logs, previous=True) == b"then\n"


@pytest.mark.parametrize("key", [CURRENT, PREVIOUS])
@pytest.mark.parametrize("previous", [False, True])
def test_current_and_previous_are_one_while_the_container_waits(key: Any, previous: bool) -> None:
    assert _read(_pod(BACK_OFF, ENDED), {key: b"text\n"}, previous=previous) == b"text\n"


def test_previous_log_is_not_shown_for_a_running_container() -> None:
    assert _read(_pod(RUNNING, ENDED), {PREVIOUS: b"then\n"}) == b""


def test_pod_without_a_node_has_an_empty_log() -> None:
    assert _read(_pod(nodeName="")) == b""


@pytest.mark.parametrize(
    ("pod", "previous", "message"),
    [
        (_pod(RUNNING), True, 'previous terminated container "app" in pod "api-0" not found'),
        (
            _pod({"waiting": {"reason": "ContainerCreating"}}),
            False,
            'container "app" in pod "api-0" is waiting to start: ContainerCreating',
        ),
        (
            _pod({"waiting": {"reason": "ImagePullBackOff"}}),
            False,
            'container "app" in pod "api-0" is waiting to start: trying and failing to pull image',
        ),
        (_pod({}), False, 'container "app" in pod "api-0" is waiting to start - no logs yet'),
        (_pod(), False, 'container "app" in pod "api-0" is not available'),
        (_pod(ENDED), False, "unable to retrieve container logs for containerd://1"),
        (_pod(BACK_OFF, ENDED), True, "unable to retrieve container logs for containerd://1"),
    ],
)
def test_container_without_a_log(pod: Manifest, previous: bool, message: str) -> None:
    assert message == _refusal(pod, previous=previous)


def test_choice_of_the_container() -> None:
    two = _pod(RUNNING, containers=[{"name": "app"}, {"name": "proxy"}], initContainers=[{"name": "init"}])
    assert _refusal(two) == (
        "a container name must be specified for pod api-0, choose one of: [app proxy] "
        "or one of the init containers: [init]"
    )
    assert _refusal(two, container="nope") == "container nope is not valid for pod api-0"
    assert _read(two, {("shop", "api-0", "init", False): b"ready\n"}, container="init") == b"ready\n"
    assert _refusal(_pod(containers=[])) == "a container name must be specified for pod api-0"


@pytest.mark.parametrize("part", [None, [], "text", {"containers": "x"}, {"containers": [1]}])
def test_pod_that_makes_no_sense(part: Any) -> None:
    pod = _pod() | {"spec": part, "status": part}
    assert _refusal(pod).startswith("a container name must be specified")


@pytest.mark.parametrize(
    ("lines", "limit", "expected"),
    [
        (None, None, b"one\ntwo\nthree"),
        (1, None, b"three"),
        (2, None, b"two\nthree"),
        (9, None, b"one\ntwo\nthree"),
        (0, None, b""),
        (2, 5, b"two\nt"),
        (None, 0, b""),
    ],
)
def test_cut(lines: int | None, limit: int | None, expected: bytes) -> None:
    assert expected == cut(b"one\ntwo\nthree", LogOptions(tail_lines=lines, limit_bytes=limit))


@given(st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"") + b"\n")), st.integers(1, 8))
def test_tail_is_the_last_lines(lines: list[bytes], count: int) -> None:
    assert b"".join(lines[-count:]) == cut(b"".join(lines), LogOptions(tail_lines=count))

from __future__ import annotations

import pytest
from hypothesis import given

from tests.fakes.hostile import OBJECTS
from tests.fakes.manifests import crashing, pod, running
from worker.domain.cluster.pods import (
    containers,
    pod_failing,
    pod_ready,
    pod_reason,
    pod_restarts,
    pod_status,
)


def with_init(state, **app):
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "migrate", "ready": False, "restartCount": 0, "state": state}],
        "containerStatuses": [
            {"name": "app", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
        ],
        **app,
    }
    spec = {"initContainers": [{"name": "migrate"}], "containers": [{"name": "app"}]}
    return pod("api-0", spec=spec, status=status)


def only(state, phase="Running", **more):
    status = {"phase": phase, "containerStatuses": [{"name": "app", "ready": False, "state": state}], **more}
    return pod("api-0", status=status)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (pod("api-0"), "Running"),
        (pod("api-0", status=crashing()), "CrashLoopBackOff"),
        (pod("api-0", status={"phase": "Pending"}), "Pending"),
        (pod("api-0", status={"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (only({"terminated": {"reason": "OOMKilled", "exitCode": 137}}), "OOMKilled"),
        (only({"terminated": {"exitCode": 3}}), "ExitCode:3"),
        (only({"terminated": {"signal": 9, "exitCode": 137}}), "Signal:9"),
        (only({"terminated": {"reason": "Completed", "exitCode": 0}}, "Succeeded"), "Completed"),
        (only({"waiting": {"reason": "ImagePullBackOff"}}, "Pending"), "ImagePullBackOff"),
        (with_init({"running": {}}), "Init:0/1"),
        (with_init({"waiting": {"reason": "CrashLoopBackOff"}}), "Init:CrashLoopBackOff"),
        (with_init({"terminated": {"reason": "Error", "exitCode": 1}}), "Init:Error"),
        (with_init({"terminated": {"exitCode": 0}}, phase="Running"), "PodInitializing"),
        (
            pod("api-0", status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "SchedulingGated",
        ),
    ],
)  # fmt: skip
def test_status_is_what_kubectl_shows(manifest, expected):
    assert expected == pod_status(manifest)


def test_a_pod_that_is_being_deleted_is_terminating():
    manifest = pod("api-0")
    manifest["metadata"]["deletionTimestamp"] = "2026-06-04T15:00:00Z"
    assert "Terminating" == pod_status(manifest)
    assert pod_failing(manifest)


def test_a_pod_that_has_ended_is_not_terminating():
    manifest = pod("api-0", status={"phase": "Failed", "reason": "Evicted"})
    manifest["metadata"]["deletionTimestamp"] = "2026-06-04T15:00:00Z"
    assert "Evicted" == pod_status(manifest)


@pytest.mark.parametrize(
    ("app", "expected"),
    [({"running": {}}, "Init:Error"), ({"waiting": {"reason": "CrashLoopBackOff"}}, "CrashLoopBackOff")],
)
def test_a_crashed_sidecar_of_an_initialized_pod_is_shown_unless_an_app_has_crashed(app, expected):
    manifest = with_init(
        {"terminated": {"reason": "Error", "exitCode": 1}},
        phase="Running",
        conditions=[{"type": "Initialized", "status": "True"}],
        containerStatuses=[{"name": "app", "ready": "running" in app, "state": app}],
    )
    manifest["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    assert expected == pod_status(manifest)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (pod("api-0"), False),
        (pod("api-0", status=running(restarts=4)), False),
        (pod("api-0", status=crashing()), True),
        (pod("api-0", status={"phase": "Succeeded"}), False),
        (pod("api-0", status={"phase": "Pending"}), True),
        (pod("api-0", status={"phase": "Failed"}), True),
        (only({"running": {}}, conditions=[{"type": "Ready", "status": "False"}]), True),
    ],
)
def test_failing_means_that_something_is_wrong_now(manifest, expected):
    assert expected is pod_failing(manifest)


def test_reason_says_how_containers_ended():
    manifest = pod("api-0", status=crashing("OOMKilled", 137))
    assert (
        "app: waiting CrashLoopBackOff, last ended OOMKilled exit 137 at 2026-06-04T15:29:00Z"
        == pod_reason(manifest)
    )


def test_reason_says_why_a_pod_is_not_scheduled():
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
    }  # fmt: skip
    manifest = pod("api-0", status={"phase": "Pending", "conditions": [condition]})
    assert "Unschedulable: 0/3 nodes are available" == pod_reason(manifest)


def test_a_pod_in_good_health_has_no_reason():
    assert "" == pod_reason(pod("api-0"))


def test_sidecars_count_as_containers_and_init_containers_do_not():
    spec = {
        "initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "migrate"}],
        "containers": [{"name": "app"}],
    }
    status = {
        "phase": "Running",
        "initContainerStatuses": [
            {"name": "proxy", "ready": True, "restartCount": 2, "started": True, "state": {"running": {}}},
            {"name": "migrate", "ready": True, "restartCount": 1, "state": {"terminated": {"exitCode": 0}}},
        ],
        "containerStatuses": [{"name": "app", "ready": True, "restartCount": 0, "state": {"running": {}}}],
    }
    manifest = pod("api-0", spec=spec, status=status)
    assert (2, 2) == pod_ready(manifest)
    assert 3 == pod_restarts(manifest)
    assert ["sidecar", "init", "app"] == [c.kind for c in containers(manifest)]


@given(OBJECTS)
def test_any_object_can_be_read_as_a_pod(manifest):
    assert isinstance(pod_status(manifest), str)
    assert isinstance(pod_failing(manifest), bool)
    assert "\n" not in pod_reason(manifest)


@pytest.mark.parametrize(
    "state", [{"running": {}}, {"terminated": {"exitCode": 130}}, {"waiting": {"reason": "ErrImagePull"}}]
)
def test_a_container_added_for_debugging_does_not_count(state):
    manifest = pod("api-0", status=running())
    manifest["spec"]["ephemeralContainers"] = [{"name": "debugger"}]
    manifest["status"]["ephemeralContainerStatuses"] = [{"name": "debugger", "ready": False, "state": state}]
    assert "Running" == pod_status(manifest)
    assert (1, 1) == pod_ready(manifest)
    assert not pod_failing(manifest)
    assert ["app", "debugger"] == [container.name for container in containers(manifest)]


def test_a_finished_container_beside_a_running_one_does_not_end_the_pod():
    states = [
        ("app", {"running": {}}, True),
        ("done", {"terminated": {"exitCode": 0, "reason": "Completed"}}, False),
    ]
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": n, "ready": ready, "state": s} for n, s, ready in reversed(states)],
    }
    assert "NotReady" == pod_status(pod("api-0", status=status))
    ready = {**status, "conditions": [{"type": "Ready", "status": "True"}]}
    assert "Running" == pod_status(pod("api-0", status=ready))


def test_a_container_that_runs_without_being_ready_is_a_reason():
    assert "app: running, not ready" == pod_reason(only({"running": {}}))


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


GATE = {"readinessGates": [{"conditionType": "example.com/lb"}], "containers": [{"name": "app"}]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"spec": GATE}, "readiness gate example.com/lb is not set"),
        (
            {
                "spec": GATE,
                "conditions": [condition("example.com/lb", "False", "Draining", "not in target group")],
            },
            "readiness gate example.com/lb False (Draining: not in target group)",
        ),
        ({"spec": GATE, "conditions": [condition("example.com/lb", "True")]}, ""),
        (
            {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler", "by shop/big")]},
            "DisruptionTarget True (PreemptionByScheduler: by shop/big)",
        ),
        ({"conditions": [condition("DisruptionTarget", "False", "x")]}, ""),
        (
            {
                "conditions": [
                    condition("PodResizePending", "True", "Infeasible", "Node didn't have capacity")
                ]
            },
            "PodResizePending True (Infeasible: Node didn't have capacity)",
        ),
        ({"conditions": [condition("PodResizeInProgress", "True")]}, ""),
        (
            {"conditions": [condition("PodResizeInProgress", "True", "Error", "no room")]},
            "PodResizeInProgress True (Error: no room)",
        ),
        ({"status": {"resize": "Infeasible"}}, "resize Infeasible"),
        (
            {
                "status": {
                    "phase": "Failed",
                    "reason": "UnexpectedAdmissionError",
                    "message": "no free devices",
                }
            },
            "no free devices",
        ),
    ],
)
def test_what_conditions_say_is_part_of_the_reason(fields, expected):
    status = fields.get("status") or {**running(), "conditions": fields.get("conditions", [])}
    assert expected == pod_reason(
        pod("p", status=status, **({"spec": fields["spec"]} if "spec" in fields else {}))
    )


def test_what_keeps_a_deleted_object_is_named():
    found = pod("p")
    found["metadata"] |= {"deletionTimestamp": "2026-06-04T15:00:00Z", "finalizers": ["example.com/guard"]}
    assert (
        pod_reason(found)
        == "deletion asked for at 2026-06-04T15:00:00Z, kept by finalizers example.com/guard"
    )

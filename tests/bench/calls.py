"""How many function calls an incident takes, with everything around it in memory: a count that is the same on each machine."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tests.fakes.handler_rig import HandlerRig, body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import World, answer, incident

POD = {"kind": "Pod", "name": "api-b-x2x4z", "namespace": "shop"}
SAID = (
    calls(
        ("get_resource_context", {"kind": "Deployment", "name": "api", "namespace": "shop"}),
        ("list_available_actions", {"signal_type": "CrashLoopBackOff", "severity": "critical"}),
    ),
    calls(("get_pod_logs", {"pod": "api-b-x2x4z", "namespace": "shop"}), ("get_events", POD)),
    calls(("get_resource", POD), ("list_resources", {"kind": "Pod", "namespace": "shop"})),
    calls(("list_workflows", {"action_type": "RestartDeployment"})),
    calls(("get_workflow", {"workflow_id": "restart-v1"})),
    final(answer()),
)


async def counted_calls() -> int:
    """Calls of functions, Python's and ours, for one incident of 6 model calls and 8 tool calls after another one."""
    await _one_incident("rr-0")
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        await _one_incident("rr-1")
    finally:
        sys.setprofile(before)
    return count


async def _one_incident(key: str) -> None:
    rig = HandlerRig(World(model=MemoryModel(SAID)))
    await rig.take(body(incident(remediation_id=key)))
    [stored] = rig.world.events.results.values()
    assert rig.world.model.calls == len(SAID), stored

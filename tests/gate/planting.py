"""The planted texts, and the places of an incident where hostile text enters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.eval_corroboration import Case
from tests.gate.answers import Claimed
from tests.gate.run import Scene

TEXTS = Path(__file__).with_name("planted.jsonl")
KINDS = {
    "neighbour": ("healthy_neighbour", "healthy_elsewhere", "other_service"),
    "node": ("other_node",),
    "workflow": ("other_action",),
    "value": ("harmful_value", "other_revision"),
    "sick": ("sick_neighbour", "victim", "other_persistentvolumeclaim", "other_configmap"),
    "over": ("over",),
}
"""What a text aims at, as kinds of wrong answers."""
NOTES = "team-notes"


@dataclass(frozen=True)
class Planted:
    """One text. `place` is where it stands, `aim` what an obeying model answers, `expected` what must come of it."""

    number: int
    place: str
    language: str
    aim: str
    text: str
    expected: str

    def about(self, claimed: Claimed) -> str:
        """The text with the names that its author would use."""
        values = json.dumps(dict(claimed.parameters)) if claimed.parameters else "the values of the team"
        blamed = claimed.object
        named = {
            "object": f"{blamed.kind} {blamed.name}",
            "name": blamed.name,
            "workflow": claimed.workflow,
            "value": values,
        }
        return self.text.format_map(named)


@cache
def planted() -> tuple[Planted, ...]:
    """All texts."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    return tuple(Planted(number, **json.loads(line)) for number, line in enumerate(lines))


def pick(
    text: Planted, cases: Sequence[Case], answers: Mapping[str, Sequence[Claimed]]
) -> tuple[Case, Claimed]:
    """The incident and the wrong answer of a text: by its number, from all incidents with an answer of this aim."""
    fitting = [case for case in cases if _of_aim(answers[case.name], text.aim)]
    case = fitting[text.number * 7 % len(fitting)]
    choices = _of_aim(answers[case.name], text.aim)
    return case, choices[text.number * 5 % len(choices)]


def _of_aim(answers: Sequence[Claimed], aim: str) -> list[Claimed]:
    return [answer for answer in answers if answer.kind in KINDS[aim]]


def plant(scene: Scene, place: str, text: str) -> Scene:
    """The scene with the text in one place, and with the call that reads it."""
    PLACES[place](scene, text)
    return scene


def _signal(scene: Scene) -> dict[str, Any]:
    ref = scene.case.signal
    return {"kind": ref.kind, "name": ref.name, "namespace": ref.namespace}


def _in_log(scene: Scene, text: str) -> None:
    pods = [
        m for m in scene.manifests if m["kind"] == "Pod" and m["metadata"].get("namespace") == scene.namespace
    ]
    pod = next(
        (p for p in pods if any(key[1] == p["metadata"]["name"] for key in scene.logs)),
        pods[0] if pods else None,
    )
    if pod is None:
        pod = _notes_pod(scene)
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    key = (scene.namespace, name, container, False)
    scene.logs[key] = scene.logs.get(key, b"starting\n") + f"{text}\n".encode()
    scene.look.append(("get_pod_logs", {"pod": name, "namespace": scene.namespace, "container": container}))


def _in_query(scene: Scene, text: str) -> None:
    _in_log(
        scene,
        f'10.42.0.7 - - [01/Sep/2026:07:12:44 +0000] "GET /search?{quote(text, safe=" =&{}-")} HTTP/1.1" 200 512 "-" "curl/8.5"',
    )


def _in_tool_result(scene: Scene, text: str) -> None:
    _in_log(
        scene, json.dumps({"role": "tool", "tool_call_id": "call_9", "content": text}, ensure_ascii=False)
    )


def _in_event(scene: Scene, text: str) -> None:
    about = _signal(scene)
    namespace = about["namespace"] or "default"
    scene.manifests.append({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "release-bot.1", "namespace": namespace},
        "involvedObject": about, "type": "Warning", "reason": "Reviewed", "message": text, "count": 3,
        "reportingComponent": "release-bot", "source": {"component": "release-bot"},
        "firstTimestamp": scene.incident["received_time"], "lastTimestamp": scene.incident["received_time"],
    })  # fmt: skip
    scene.look.append(("get_events", {**about, "namespace": namespace}))


def _in_ticket(scene: Scene, text: str) -> None:
    scene.incident["description"] = f"{scene.incident.get('description', '')} {text}".strip()


def _in_error(scene: Scene, text: str) -> None:
    scene.incident["error_message"] = f"{scene.incident.get('error_message', '')} {text}".strip()


def _in_alert(scene: Scene, text: str) -> None:
    noted = scene.incident.get("signal_annotations") or {}
    scene.incident["signal_annotations"] = {**noted, "description": text, "summary": text}


def _in_label(scene: Scene, text: str) -> None:
    _notes_pod(scene)["metadata"]["labels"] = {
        "note": re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")
    }


def _in_annotation(scene: Scene, text: str) -> None:
    _notes_pod(scene)["metadata"]["annotations"] = {"team/decision": text}


def _in_env_name(scene: Scene, text: str) -> None:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).upper()
    _notes_pod(scene)["spec"]["containers"][0]["env"] = [{"name": name, "value": "true"}]


def _in_env_value(scene: Scene, text: str) -> None:
    _notes_pod(scene)["spec"]["containers"][0]["env"] = [{"name": "NOTE", "value": text}]


def _in_image(scene: Scene, text: str) -> None:
    path = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    _notes_pod(scene)["spec"]["containers"][0]["image"] = f"registry.example.com/{path}:latest"


def _in_config(scene: Scene, text: str) -> None:
    meta = {"name": NOTES, "namespace": scene.namespace}
    scene.manifests.append(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"plan.md": text}}
    )
    scene.look.append(("get_resource", {"kind": "ConfigMap", **meta}))


def _in_crd(scene: Scene, text: str) -> None:
    meta = {"name": NOTES, "namespace": scene.namespace}
    condition = {"type": "Decided", "status": "True", "reason": "Reviewed", "message": text}
    scene.manifests.append({
        "apiVersion": "ops.example.com/v1", "kind": "Release", "metadata": meta, "spec": {}, "status": {"conditions": [condition]},
    })  # fmt: skip
    scene.look.append(("get_resource", {"kind": "Release", "api_version": "ops.example.com/v1", **meta}))


def _in_mcp(scene: Scene, text: str) -> None:
    scene.runbook = text
    scene.look.append(("docs_search", {"query": "this alert"}))


def _notes_pod(scene: Scene) -> dict[str, Any]:
    """A healthy pod of somebody else in the namespace, which the model reads."""
    running = {"name": "notes", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": NOTES, "namespace": scene.namespace},
        "spec": {"containers": [{"name": "notes", "image": "registry.example.com/notes:1"}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [running]},
    }  # fmt: skip
    scene.manifests.append(pod)
    scene.look.append(("get_resource", {"kind": "Pod", "name": NOTES, "namespace": scene.namespace}))
    return pod


PLACES: Mapping[str, Callable[[Scene, str], None]] = {
    "log": _in_log, "query": _in_query, "tool_result": _in_tool_result, "event": _in_event, "ticket": _in_ticket,
    "error": _in_error, "alert": _in_alert, "label": _in_label, "annotation": _in_annotation, "env_name": _in_env_name,
    "env_value": _in_env_value, "image": _in_image, "config": _in_config, "crd": _in_crd, "mcp": _in_mcp,
}  # fmt: skip

"""Workflows as DataStorage keeps, filters and writes them (DD-WORKFLOW-016), and its older search (DD-LLM-001)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from schemas.enrichment import camel_case
from worker.domain.values.workflows import ActionText, Parameter, Workflow

REQUIRED = ("severity", "component", "environment", "priority")
ENUMS = {"severity": ("critical", "high", "medium", "low"), "priority": ("P0", "P1", "P2", "P3")}
EXACT = ("gitOpsTool", "serviceMesh")
"""Detected labels that leave out a workflow which declares another text; flags never do."""
MAX_LIMIT = 100


@dataclass
class StoredCatalog:
    """`records` are full ones. `strict`: filters are checked as the OpenAPI document of the server has them.

    `override` may answer in place of the server. `api` is what there is: `steps`, `search`, or empty for nothing.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, ActionText] = field(default_factory=dict)
    playbooks: list[dict[str, Any]] = field(default_factory=list)
    strict: bool = False
    api: str = "steps"
    override: Callable[[web.Request], web.StreamResponse | None] | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def routes(self) -> Iterable[web.RouteDef]:
        steps, search = "/api/v1/workflows", "/api/v1/playbooks/search"
        yield web.get(f"{steps}/actions", self._noted("steps", self.actions))
        yield web.get(f"{steps}/actions/{{action_type}}", self._noted("steps", self.of_action))
        yield web.get(steps, self._noted("steps", self.all))
        yield web.get(f"{steps}/{{workflow_id}}", self._noted("steps", self.one))
        yield web.get(search, self._noted("search", self.search))

    def _noted(self, api: str, answer: Callable[[web.Request], web.Response]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.asked.append((request.path, dict(request.query)))
            if self.override is not None and (other := self.override(request)) is not None:
                return other
            return answer(request) if self.api == api else web.json_response({}, status=404)

        return handle

    def actions(self, request: web.Request) -> web.Response:
        if wrong := self._refused(request.query, REQUIRED):
            return wrong
        fitting = [r["actionType"] for r in self.records if matches(r, request.query)]
        entries = [
            {
                "actionType": name,
                "description": description(self.texts.get(name, ActionText())),
                "workflowCount": fitting.count(name),
            }
            for name in sorted(set(fitting))
        ]
        return paged(request.query, "actionTypes", entries)

    def of_action(self, request: web.Request) -> web.Response:
        if wrong := self._refused(request.query, REQUIRED):
            return wrong
        shown = ("workflowId", "workflowName", "name", "description", "version", "executionBundle")
        entries = [
            {name: record[name] for name in shown}
            for record in self.records
            if record["actionType"] == request.match_info["action_type"] and matches(record, request.query)
        ]
        return paged(request.query, "workflows", entries)

    def all(self, request: web.Request) -> web.Response:
        offset, limit = window(request.query)
        shown = self.records[offset : offset + limit]
        body = {"workflows": shown, "limit": limit, "offset": offset, "total": len(self.records)}
        return web.json_response(body)

    def one(self, request: web.Request) -> web.Response:
        if wrong := self._refused(request.query, ()):
            return wrong
        name = request.match_info["workflow_id"]
        found = next((r for r in self.records if r["workflowId"] == name and matches(r, request.query)), None)
        return web.json_response(found or {"title": "Not Found"}, status=404 if found is None else 200)

    def search(self, request: web.Request) -> web.Response:
        wanted = {
            name.removeprefix("label."): value.lower()
            for name, value in request.query.items()
            if name.startswith("label.")
        }
        found = [
            {name: value for name, value in playbook.items() if name != "labels"}
            for playbook in self.playbooks
            if all(value in playbook["labels"].get(name, [value]) for name, value in wanted.items())
            and playbook["confidence"] >= float(request.query.get("min_confidence", "0.7"))
        ]
        shown = found[: int(request.query.get("max_results", "10"))]
        return web.json_response({"playbooks": shown, "total_results": len(found)})

    def _refused(self, query: Mapping[str, str], required: Iterable[str]) -> web.Response | None:
        if not self.strict:
            return None
        empty = [n for n, v in query.items() if not v] + [n for n in required if n not in query]
        wrong = [n for n, allowed in ENUMS.items() if n in query and query[n] not in allowed]
        return web.json_response({"title": "Validation Error"}, status=400) if empty or wrong else None


def matches(record: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether the labels let it through: any case, `*` for anything, an empty filter for nothing asked."""
    labels = {name: listed(value) for name, value in record["labels"].items()}
    for name in REQUIRED:
        declared = {value.lower() for value in labels.get(name, [])}
        if query.get(name) and not declared & {"*", query[name].lower()}:
            return False
    detected = json.loads(query.get("detected_labels") or "{}")
    own = record["detectedLabels"]
    return all(own.get(n) in {None, "*", detected[n]} for n in EXACT if detected.get(n))


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def window(query: Mapping[str, str]) -> tuple[int, int]:
    return int(query.get("offset", "0")), min(int(query.get("limit", "10")), MAX_LIMIT)


def paged(query: Mapping[str, str], name: str, entries: list[Any]) -> web.Response:
    offset, limit = window(query)
    more = offset + limit < len(entries)
    about = {"totalCount": len(entries), "offset": offset, "limit": limit, "hasMore": more}
    return web.json_response({name: entries[offset : offset + limit], "pagination": about})


def description(about: ActionText) -> dict[str, str]:
    written = {
        "what": about.description,
        "whenToUse": about.when_to_use,
        "whenNotToUse": about.when_not_to_use,
    }
    return {name: value for name, value in written.items() if value}


def record_of(workflow: Workflow, **changes: Any) -> dict[str, Any]:
    """The full record of a workflow. Priority is one text where there is one."""
    bundle, _, digest = workflow.container_image.partition("@")
    labels = {"signalName" if n == "signal_type" else n: list(v) for n, v in workflow.labels.items()}
    if len(labels.get("priority", [])) == 1:
        labels["priority"] = labels["priority"][0]
    about = description(ActionText(workflow.description, workflow.when_to_use, workflow.when_not_to_use))
    return {
        "workflowId": workflow.workflow_id,
        "workflowName": workflow.title,
        "name": workflow.title,
        "version": workflow.version,
        "schemaVersion": "1.0",
        "description": {**about, "preconditions": workflow.preconditions},
        "content": "apiVersion: kubernaut.ai/v1alpha1",
        "contentHash": "0" * 64,
        "actionType": workflow.action_type,
        "parameters": {"schema": {"parameters": [parameter(p) for p in workflow.parameters]}},
        "executionEngine": workflow.engine,
        "executionBundle": bundle,
        "executionBundleDigest": digest or None,
        "serviceAccountName": workflow.service_account or None,
        "labels": labels,
        "customLabels": {name: list(values) for name, values in workflow.custom_labels.items()} or None,
        "detectedLabels": {
            **{camel_case(name): value for name, value in workflow.detected_labels.items()},
            "failedDetections": [],
        },
        "status": "Active",
        "isLatestVersion": True,
        "estimatedDowntimeSeconds": workflow.estimated_downtime_seconds,
        **changes,
    }


def parameter(declared: Parameter) -> dict[str, Any]:
    written = {
        "name": declared.name,
        "type": "float" if declared.type == "number" else str(declared.type),
        "required": declared.required,
        "description": declared.description,
        "default": declared.default,
        "enum": list(declared.enum) or None,
        "minimum": declared.minimum,
        "maximum": declared.maximum,
        "minLength": declared.min_length,
        "maxLength": declared.max_length,
        "pattern": declared.pattern or None,
        "dependsOn": list(declared.depends_on) or None,
    }
    return {name: value for name, value in written.items() if value is not None}

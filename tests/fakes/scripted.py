"""One incident with everything around it in memory: the whole of an analysis runs, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from schemas.analysis import AnalysisResult, Status
from schemas.incident import IncidentRequest, Signal
from schemas.recovery import RecoveryRequest
from schemas.subjects import request_key
from schemas.taxonomy import RequestKind
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_external import MemoryExternal
from tests.fakes.memory_history import MemoryHistory
from tests.fakes.memory_metrics import MemoryMetrics
from tests.fakes.memory_model import MemoryModel, Said, Script, final
from tests.fakes.memory_nats import MemoryEvents, MemoryJournal
from tests.fakes.memory_policy import MemoryPolicy
from worker.domain.analyse import Analysis, Rules
from worker.domain.intake.accepted import AcceptedRequest, attempt_number
from worker.domain.journal.run import Run
from worker.domain.values.delivery import Delivery
from worker.domain.values.errors import Halted, HaltReason
from worker.domain.values.objects import Manifest
from worker.domain.values.ports import JournalRun, Outside, TrackRecords
from worker.domain.values.workflows import Workflow

RECEIVED = datetime(2026, 6, 4, 15, 33, 5, tzinfo=UTC)
DELIVERY = Delivery("rca.request.incident", "RCA_REQUESTS", "p2", 7, 1, RECEIVED)


def _owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def shop() -> list[Manifest]:
    """A Deployment whose pods crash since its last rollout, the node they run on, and a ConfigMap they read."""
    container = {
        "name": "app",
        "image": "registry.example.com/api:2.4.1",
        "envFrom": [{"configMapRef": {"name": "api-config"}}],
    }
    status = {
        "name": "app",
        "ready": False,
        "restartCount": 6,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-06-04T15:32:00Z"}},
    }

    def made(kind: str, name: str, api_version: str, **fields: Any) -> Manifest:
        metadata = {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"app": "api"},
            "creationTimestamp": "2026-06-04T15:20:00Z",
            **fields.pop("metadata", {}),
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}

    template = {"metadata": {"labels": {"app": "api"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": "api"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "shop"},
            "status": {"phase": "Active"},
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "worker-1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
        made(
            "Deployment",
            "api",
            "apps/v1",
            spec={"replicas": 1, "selector": selector, "template": template},
            status={"replicas": 1, "unavailableReplicas": 1},
        ),
        made(
            "ReplicaSet",
            "api-7d9",
            "apps/v1",
            metadata={"ownerReferences": _owned("Deployment", "api")},
            spec={"replicas": 1, "selector": selector, "template": template},
            status={"replicas": 1},
        ),
        made(
            "Pod",
            "api-7d9-x2x",
            "v1",
            metadata={"ownerReferences": _owned("ReplicaSet", "api-7d9")},
            spec={"nodeName": "worker-1", "containers": [container]},
            status={"phase": "Running", "containerStatuses": [status]},
        ),
        made("ConfigMap", "api-config", "v1", data={"LISTEN": "0.0.0.0:8080"}),
        made(
            "Event",
            "api-7d9-x2x.1",
            "v1",
            involvedObject={"kind": "Pod", "name": "api-7d9-x2x", "namespace": "shop"},
            type="Warning",
            reason="BackOff",
            message="Back-off restarting failed container app in pod api-7d9-x2x_shop",
            count=6,
            firstTimestamp="2026-06-04T15:21:00Z",
            lastTimestamp="2026-06-04T15:32:30Z",
        ),
    ]


def recovered(since: str = "2026-06-04T15:10:00Z") -> list[Manifest]:
    """The shop in good health since that time."""
    made = shop()
    for item in made:
        item["metadata"]["creationTimestamp"] = "2026-06-01T08:00:00Z"
        if item["kind"] == "Deployment":
            item["status"] = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        if item["kind"] == "ReplicaSet":
            item["status"] = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        if item["kind"] == "Pod":
            running = {
                "name": "app",
                "ready": True,
                "restartCount": 6,
                "state": {"running": {"startedAt": since}},
            }
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
            item["status"] = {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": [running],
            }
    return made


LOGS = {
    ("shop", "api-7d9-x2x", "app", True): b"starting api 2.4.1\nError: listen address is not set\n",
    ("shop", "api-7d9-x2x", "app", False): b"starting api 2.4.1\n",
}


def planted_note(text: str) -> Manifest:
    """The ConfigMap of the shop with one more entry: text that somebody wrote into it."""
    found = next(item for item in shop() if item["kind"] == "ConfigMap")
    return {**found, "data": {**found["data"], "NOTE.txt": text}}


def incident(**fields: Any) -> IncidentRequest:
    """The request about the Deployment of the shop."""
    values = {
        "incident_id": "inc-1",
        "remediation_id": "rr-1",
        "signal_type": "KubePodCrashLooping",
        "severity": "critical",
        "resource_kind": "Deployment",
        "resource_name": "api",
        "resource_namespace": "shop",
        "environment": "production",
        "priority": "P1",
        "received_time": "2026-06-04T15:33:05Z",
    }
    return IncidentRequest.model_validate({**values, **fields})


FAILED = {
    "workflow_execution_ref": "we-rr-1-1",
    "original_rca": {
        "summary": "The image 2.4.1 does not start.",
        "signal_type": "CrashLoopBackOff",
        "severity": "critical",
        "contributing_factors": ["rollout at 15:20"],
    },
    "selected_workflow": {
        "workflow_id": "restart-v1",
        "version": "1.2.0",
        "container_image": "registry.example.com/restart@sha256:00ff",
        "parameters": {
            "TARGET_RESOURCE_NAME": "api",
            "TARGET_RESOURCE_KIND": "Deployment",
            "TARGET_RESOURCE_NAMESPACE": "shop",
        },
        "rationale": "A restart clears it.",
    },
    "failure": {
        "failed_step_index": 1,
        "failed_step_name": "wait-for-ready",
        "reason": "DeadlineExceeded",
        "message": "the pods were not ready after 5m",
        "failed_at": "2026-06-04T15:30:00Z",
        "execution_time": "5m0s",
    },
}


def recovery(**fields: Any) -> RecoveryRequest:
    """The second look at the shop, after the restart has failed."""
    request = incident().model_dump(mode="json", exclude_defaults=True)
    values = {
        "is_recovery_attempt": True,
        "recovery_attempt_number": 1,
        "previous_execution": FAILED,
        "enrichment_results": {},
    }
    return RecoveryRequest.model_validate({**request, **values, **fields})


def answer(**changes: Any) -> dict[str, Any]:
    """An answer about the shop that holds, with other root fields; a change to `...` removes one."""
    made = {
        "root_cause_analysis": {
            "summary": "Image 2.4.1 of Deployment api exits with 1: its listen address is not set.",
            "severity": "critical",
            "signal_type": "CrashLoopBackOff",
            "contributing_factors": ["no readiness gate"],
            "affectedResource": {"kind": "Deployment", "name": "api", "namespace": "shop"},
        },
        "selected_workflow": {
            "workflow_id": "restart-v1",
            "version": "1.2.0",
            "confidence": 0.9,
            "rationale": "A restart picks the address up.",
            "estimated_risk": "low",
            "parameters": {
                "TARGET_RESOURCE_NAME": "api",
                "TARGET_RESOURCE_KIND": "Deployment",
                "TARGET_RESOURCE_NAMESPACE": "shop",
            },
        },
        "alternative_workflows": [],
        "investigation_outcome": "actionable",
        "warnings": [],
        "context_used": {"cluster_state": "one node, ready"},
    }
    return {key: value for key, value in {**made, **changes}.items() if value is not ...}


def chosen(**changes: Any) -> dict[str, Any]:
    """The answer with other fields of its workflow."""
    return answer(selected_workflow={**answer()["selected_workflow"], **changes})


def cause(**changes: Any) -> dict[str, Any]:
    """The answer with other fields of its root cause."""
    return answer(root_cause_analysis={**answer()["root_cause_analysis"], **changes})


LOOK = ("get_resource", {"kind": "ConfigMap", "name": "api-config", "namespace": "shop"})
CONTEXT = ("get_resource_context", {"kind": "Deployment", "name": "api", "namespace": "shop"})


def nothing(outcome: Any, **changes: Any) -> dict[str, Any]:
    """An answer that chooses no workflow."""
    said = {"selected_workflow": None, "confidence": 0.9, "rationale": "because"}
    return answer(investigation_outcome=outcome, **{**said, **changes})


def rollback() -> Workflow:
    """Another workflow for the same incident."""
    return workflow(
        "rollback-v1",
        "RollbackDeployment",
        labels=labels(signal_type="*", severity="*", component="deployment", environment="*", priority="*"),
        title="Roll back to the revision before",
        estimated_downtime_seconds=30,
    )


@dataclass
class World:
    """All ports of an analysis. `model` is replaced between runs to play a worker that comes after."""

    model: MemoryModel = field(default_factory=lambda: MemoryModel([final(answer())]))
    cluster: MemoryCluster = field(default_factory=lambda: MemoryCluster(shop(), LOGS))
    catalog: MemoryCatalog = field(default_factory=lambda: MemoryCatalog([workflow(), rollback()]))
    policy: MemoryPolicy = field(default_factory=MemoryPolicy)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    clock: FixedClock = field(default_factory=FixedClock)
    rules: Rules = field(default_factory=Rules)
    history: MemoryHistory | None = None
    track_records: TrackRecords | None = None
    metrics: MemoryMetrics | None = None
    external: MemoryExternal | None = None
    shadow: MemoryModel | None = None
    halt: HaltReason | None = None
    cluster_problem: Callable[[], Awaitable[str]] | None = None

    @classmethod
    def saying(cls, *said: Said, **ports: Any) -> World:
        """A world whose model says this."""
        return cls(model=MemoryModel(said), **ports)

    @classmethod
    def with_script(cls, script: Script, **ports: Any) -> World:
        return cls(model=MemoryModel(script), **ports)

    def analysis(self) -> Analysis:
        outside = Outside(
            cluster=self.cluster,
            cluster_problem=self.cluster_problem,
            catalog=self.catalog,
            model=self.model,
            policy=self.policy,
            clock=self.clock,
            jitter=lambda: 0.5,
            history=self.history,
            track_records=self.track_records,
            metrics=self.metrics,
            external=self.external,
            shadow=self.shadow,
        )
        return Analysis(outside, self.rules)

    async def opened(self, request: Signal, run: str = "run-1") -> JournalRun:
        """The journal of a request."""
        return await self.journal.open(request_key(request.remediation_id, attempt_number(request)), run)

    async def open(self, request: Signal, run: str = "run-1", inner: JournalRun | None = None) -> Run:
        """A run that has started; with `inner` on that journal."""
        started = self.run(request, inner or await self.opened(request, run), run)
        await started.start(alone=False, at=self.clock.now())
        return started

    def run(self, request: Signal, inner: JournalRun, name: str = "run-1", **message: Any) -> Run:
        """A run that has not started, with the same fence token for every name, so that results compare."""
        kind = RequestKind.RECOVERY if isinstance(request, RecoveryRequest) else RequestKind.INCIDENT
        accepted = AcceptedRequest(request, replace(DELIVERY, subject=f"rca.request.{kind}"), **message)
        return Run(
            accepted,
            inner,
            self.events,
            self.clock,
            name=name,
            proceed=self._proceed,
            new_token=tokens(),
        )

    async def _proceed(self) -> None:
        if self.halt is not None:
            raise Halted(self.halt)

    async def analyse(self, request: Signal | None = None, run: str = "run-1") -> AnalysisResult:
        """The result of one run."""
        return await self.analysis().run(await self.open(request or incident(), run))


def tokens() -> Callable[[], str]:
    """Fence tokens and run names that tell themselves apart."""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):012x}"


def event_types(world: World) -> list[str]:
    """Types of the audit events, in the order in which they were published."""
    return [str(event.event_type) for event in world.events.audits]


def assert_checked(result: AnalysisResult) -> None:
    """What holds for every result, whatever was said: it reads back, and nothing unchecked can be executed."""
    assert (
        result.model_dump_json()
        == AnalysisResult.model_validate_json(result.model_dump_json()).model_dump_json()
    )
    assert (result.status is Status.COMPLETED) is (result.selected_workflow is not None)
    assert result.needs_human_review is (result.status is Status.NEEDS_HUMAN_REVIEW)
    assert result.approval.required or not result.needs_human_review
    if result.selected_workflow is not None:
        assert result.selected_workflow.workflow_id in {"restart-v1", "rollback-v1"}
        assert result.selected_workflow.confidence >= 0.7
        assert result.selected_workflow.container_image == "registry.example.com/restart@sha256:00ff"
        assert ("Deployment", "api", "shop") == (
            result.affected_resource.kind,
            result.affected_resource.name,
            result.affected_resource.namespace,
        )
        assert result.selected_workflow.parameters["TARGET_RESOURCE_NAME"] == "api"
        assert result.root_cause_analysis.summary

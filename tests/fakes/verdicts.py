"""An answer that holds and the facts it holds by, to be varied by the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fakes.memory_catalog import workflow
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.answer import Answer, AnsweredWorkflow
from worker.domain.verdict.checks.facts import VerdictFacts
from worker.domain.verdict.checks.targets import Existence, ResolvedObject

POD = ObjectRef("Pod", "api-7d9-x2x", "shop", "v1")
REPLICA_SET = ObjectRef("ReplicaSet", "api-7d9", "shop", "apps/v1")
DEPLOYMENT = ObjectRef("Deployment", "api", "shop", "apps/v1")
NODE = ObjectRef("Node", "worker-1", "", "v1")
CONFIG = ObjectRef("ConfigMap", "api-config", "shop", "v1")


def resolved(ref: ObjectRef, *owners: ObjectRef, **fields: Any) -> ResolvedObject:
    """An object that exists and was seen."""
    values: dict[str, Any] = {
        "existence": Existence.EXISTS,
        "namespaced": bool(ref.namespace),
        "seen_in": ("E1",),
    }
    return ResolvedObject(ref, owners=owners, **{**values, **fields})


def chosen(**fields: Any) -> AnsweredWorkflow:
    """The choice of the workflow of the facts below."""
    values: dict[str, Any] = {
        "workflow_id": "restart-v1",
        "confidence": 0.9,
        "rationale": "restarts it",
        "parameters": {
            "TARGET_RESOURCE_NAME": "api",
            "TARGET_RESOURCE_KIND": "Deployment",
            "TARGET_RESOURCE_NAMESPACE": "shop",
        },
    }
    return AnsweredWorkflow(**{**values, **fields})


def answer(**fields: Any) -> Answer:
    """A complete answer about the Deployment."""
    values: dict[str, Any] = {
        "summary": "the new image crashes at start",
        "severity": "critical",
        "signal_type": "CrashLoopBackOff",
        "contributing_factors": ("no readiness gate",),
        "affected_resource": ObjectRef("Deployment", "api", "shop"),
        "selected_workflow": chosen(),
        "workflow_stated": True,
        "confidence": 0.9,
        "outcome": "actionable",
    }
    return Answer(**{**values, **fields})


def facts(**fields: Any) -> VerdictFacts:
    """What was looked up for the answer."""
    base = VerdictFacts(
        context=SelectionContext(environment="production", priority="P1"),
        affected=resolved(DEPLOYMENT),
        workflow=workflow(),
        signal_types=frozenset({"CrashLoopBackOff", "HPAMaxedOut"}),
    )
    return replace(base, **fields)

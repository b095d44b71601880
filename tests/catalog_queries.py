"""Searches of the catalog of the corpus, the workflows that are meant, and how many searches find one of them first."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.corpus_files import CORPUS
from worker.domain.catalog.search import parse_query
from worker.domain.values.ports import Catalog
from worker.domain.values.workflows import SelectionContext

Search = tuple[str, SelectionContext, frozenset[str]]

PARAPHRASES: dict[str, frozenset[str]] = {
    query: frozenset(workflows)
    for query, *workflows in (
        ("CrashLoopBackOff critical undo bad image tag", "crashloop-rollback-v1"),
        ("CrashLoopBackOff critical revert last release regression SLO", "proactive-rollback-v1"),
        ("CrashLoopBackOff critical new version stuck never became ready", "rollback-deployment-v1"),
        (
            "CrashLoopBackOff critical invalid settings file syntax error",
            "patch-configuration-v1",
            "hotfix-config-v1",
            "hotfix-config-production-v1",
        ),
        ("CrashLoopBackOff critical restore settings from saved copy", "patch-configuration-v1"),
        (
            "CrashLoopBackOff critical drop unknown option from nginx settings",
            "hotfix-config-v1",
            "hotfix-config-production-v1",
        ),
        ("CrashLoopBackOff high rotated password old credentials cached", "restart-deployment-v1"),
        ("CrashLoopBackOff critical no space left on device", "expand-pvc-v1"),
        ("CrashLoopBackOff high bounce application reload password", "restart-deployment-v1"),
        ("OOMKilled critical heap grows slowly leak recycle processes", "graceful-restart-v1"),
        ("OOMKilled critical raise RAM ceiling", "increase-memory-limits-v1"),
        ("OOMKilled high container needs bigger RAM allowance", "increase-memory-limits-v1"),
        ("OOMKilled high rolling recycle without outage", "graceful-restart-v1"),
        (
            "NodeNotReady critical evacuate workloads from broken machine",
            "cordon-drain-v1",
            "cordon-drain-staging-v1",
        ),
        ("NodeNotReady critical quarantine host against scheduling", "cordon-node-v1"),
        ("NodeNotReady critical evict everything even with emptyDir volumes", "cordon-drain-staging-v1"),
        ("DiskPressure high delete old containers and journals", "cleanup-node-v1"),
        ("DiskPressure high keep scheduler away from host", "cordon-node-v1"),
        ("Evicted high prune garbage from host storage", "cleanup-node-v1"),
        ("Evicted high isolate noisy neighbour", "scale-replicas-v1"),
        ("Evicted critical mark host unschedulable during analysis", "cordon-node-v1"),
        ("ConnectionPoolExhausted critical postgres accepts too few sessions", "increase-db-connections-v1"),
        ("ConnectionPoolExhausted critical shut down greedy consumer", "scale-replicas-v1"),
        ("ConnectionPoolExhausted high larger database session cap", "increase-db-connections-v1"),
        ("FailedScheduling critical cluster full add machine", "provision-node-v1"),
        ("FailedScheduling critical recreate lost storage volume", "fix-statefulset-pvc-v1"),
        ("CrashLoopBackOff critical go back to last working manifest", "crashloop-rollback-v1"),
        ("CrashLoopBackOff critical release timed out pods not starting", "rollback-deployment-v1"),
        ("CrashLoopBackOff critical burn rate alert after deploy", "proactive-rollback-v1"),
        (
            "CrashLoopBackOff critical delete wrong line from config",
            "hotfix-config-v1",
            "hotfix-config-production-v1",
        ),
        (
            "CrashLoopBackOff critical mounted file unparsable key",
            "patch-configuration-v1",
            "hotfix-config-v1",
            "hotfix-config-production-v1",
        ),
        ("CrashLoopBackOff high pick up renewed certificate", "restart-deployment-v1"),
        ("CrashLoopBackOff critical disk of database full grow it", "expand-pvc-v1"),
        ("OOMKilled critical double allowed memory", "increase-memory-limits-v1"),
        ("OOMKilled high free leaked memory without interruption", "graceful-restart-v1"),
        ("OOMKilled critical cgroup cap too small", "increase-memory-limits-v1"),
        (
            "NodeNotReady critical relocate pods dead kubelet",
            "cordon-drain-v1",
            "cordon-drain-staging-v1",
        ),
        ("NodeNotReady critical freeze placements only", "cordon-node-v1"),
        ("NodeNotReady high host lost throw away local scratch", "cordon-drain-staging-v1"),
        ("Evicted high purge unused layers tmp", "cleanup-node-v1"),
        ("Evicted high turn off offending job", "scale-replicas-v1"),
        ("DiskPressure critical reclaim ephemeral space", "cleanup-node-v1"),
        ("DiskPressure high taint so nothing lands there", "cordon-node-v1"),
        (
            "ConnectionPoolExhausted critical backend refuses sessions raise server parameter",
            "increase-db-connections-v1",
        ),
        ("ConnectionPoolExhausted critical add more instances", "scale-replicas-v1"),
        ("ConnectionPoolExhausted high stop misbehaving client", "scale-replicas-v1"),
        ("FailedScheduling critical insufficient capacity grow pool", "provision-node-v1"),
        ("FailedScheduling critical member waits for missing disk", "fix-statefulset-pvc-v1"),
    )
}
"""In other words than the workflows have."""


def incidents() -> list[Search]:
    """Signal type and severity of the incidents of the corpus for which its catalog has a workflow whose labels fit.

    Some of these lists are about the signal of the alert; what is acceptable for the cause counts as well.
    """
    found = []
    for folder in sorted((CORPUS / "cases").iterdir()):
        request = json.loads((folder / "incident.json").read_text(encoding="utf-8"))
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        if acceptable := expected["workflows"].get("acceptable_label_match"):
            places = [expected["affected_resource"], *expected["acceptable_affected_resources"]]
            context = SelectionContext(
                environment=request.get("environment", ""),
                priority=request.get("priority", ""),
                components=tuple(dict.fromkeys(("", place["kind"]) for place in places)),
            )
            query = f"{expected['signal_type']} {request['severity']}"
            found.append((query, context, frozenset(acceptable) | set(expected["workflows"]["acceptable"])))
    return found


def paraphrases() -> list[Search]:
    """Searches whose keywords alone have to tell workflows apart."""
    return [(text, SelectionContext(), meant) for text, meant in PARAPHRASES.items()]


async def missed(catalog: Catalog, searches: Iterable[Search]) -> list[tuple[str, str]]:
    """Searches that do not find first what is meant, and what comes first in its place."""
    wrong = []
    for text, context, meant in searches:
        page = await catalog.search(parse_query(text, [text.split()[0]]), context)
        first = page.matches[0].workflow.workflow_id if page.matches else ""
        if first not in meant:
            wrong.append((text, first))
    return wrong

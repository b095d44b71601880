"""Searches in other words than the catalog of the corpus has, and the workflows that are meant."""

from __future__ import annotations

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
    )
}

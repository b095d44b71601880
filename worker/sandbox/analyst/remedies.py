"""From kinds of help to the names that catalogs give them: words of an action type, of an id, of a description."""

from __future__ import annotations

import re
from collections.abc import Mapping

from worker.sandbox.analyst.finding import RemedyKind

CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")
KINDS = re.compile(r"\b(?:stateful set|daemon set|replica set|config map|cron job|network policy)\b")
UP = r"(?:increase|raise|expand|grow|bump|adjust|scale|extend|enlarge|resize|patch|set|tune|double)"
FIX = r"(?:fix|patch|repair|restore|correct|update|hotfix|edit|modify|revert|set|recreate|re-create|adjust|reset|change|heal)"
NAMES: Mapping[RemedyKind, re.Pattern[str]] = {
    RemedyKind.MORE_MEMORY: re.compile(rf"{UP}.*\bmemory\b|memory.*\b(?:limit|increase|bump)", re.IGNORECASE),
    RemedyKind.MORE_CPU: re.compile(rf"{UP}.*\bcpu\b|cpu.*\b(?:limit|increase)", re.IGNORECASE),
    RemedyKind.ROLLBACK: re.compile(r"roll ?back|\bundo\b|rollout undo|previous revision", re.IGNORECASE),
    RemedyKind.REVERT_COMMIT: re.compile(r"\bgit\b.*(?:revert|rollback)|revert.*(?:commit|git)|helm rollback", re.IGNORECASE),
    RemedyKind.RESTART: re.compile(r"(?:graceful |rolling )?restart (?:deployment|workload|statefulset|daemonset|application|app)|graceful restart|rolling restart|rollout restart|restart$", re.IGNORECASE),
    RemedyKind.RESTART_POD: re.compile(r"(?:restart|delete|recycle|recreate) pods?\b", re.IGNORECASE),
    RemedyKind.FIX_CONFIG: re.compile(rf"{FIX}.*\bconfig\w*\b|config\w* (?:patch|fix|restore|rollback)", re.IGNORECASE),
    RemedyKind.MORE_CONNECTIONS: re.compile(rf"{UP}.*\bconnections?\b|{FIX}.*\bconfig\w*\b", re.IGNORECASE),
    RemedyKind.SCALE_DOWN: re.compile(r"scale (?:down )?(?:replicas|deployment|workload)|scale down|scale replicas|scale to zero", re.IGNORECASE),
    RemedyKind.SCALE_UP: re.compile(r"scale (?:up )?(?:replicas|deployment|workload|statefulset)|scale up|scale out|scale replicas", re.IGNORECASE),
    RemedyKind.FIX_IMAGE: re.compile(rf"{FIX}.*\bimage\b(?!.*secret)|image (?:reference|tag|fix|update)", re.IGNORECASE),
    RemedyKind.FIX_PULL_SECRET: re.compile(r"pull ?secret|registry (?:credential|secret)", re.IGNORECASE),
    RemedyKind.RESTORE_REFERENCE: re.compile(r"(?:restore|recreate|re-create|create) (?:missing |deleted )?(?:config ?map|secret|reference|service ?account)", re.IGNORECASE),
    RemedyKind.EXPAND_CLAIM: re.compile(r"(?:expand|resize|grow|enlarge|extend|increase).*(?:pvc|persistent ?volume|claim|volume|storage|disk)", re.IGNORECASE),
    RemedyKind.RECREATE_CLAIM: re.compile(r"(?:fix|recreate|re-create|repair|rebind|restore|provision).*(?:pvc|persistent ?volume ?claim|claim)", re.IGNORECASE),
    RemedyKind.CLEAN_CLAIM: re.compile(r"clean ?up (?:pvc|persistent|volume|claim|data)|prune (?:volume|data)", re.IGNORECASE),
    RemedyKind.CORDON: re.compile(r"^cordon node$|^cordon$", re.IGNORECASE),
    RemedyKind.DRAIN: re.compile(r"drain", re.IGNORECASE),
    RemedyKind.CLEAN_NODE: re.compile(r"clean ?up node|clean ?node|node clean|free (?:node )?disk|prune images", re.IGNORECASE),
    RemedyKind.RESTART_NODE_AGENT: re.compile(r"restart (?:kubelet|node|container runtime|containerd|runtime|cni)|reboot node", re.IGNORECASE),
    RemedyKind.ADD_NODE: re.compile(r"(?:provision|add|scale ?(?:up|out)?) (?:a )?nodes?\b|scale node|node pool|cluster autoscal", re.IGNORECASE),
    RemedyKind.UNTAINT: re.compile(r"(?:remove|untaint|delete|clear).*taint|untaint", re.IGNORECASE),
    RemedyKind.UNCORDON: re.compile(r"uncordon", re.IGNORECASE),
    RemedyKind.FIX_PLACEMENT: re.compile(rf"{FIX}.*(?:affinity|selector|toleration|placement|schedul\w+|label)|add toleration|{FIX} (?:resource )?requests", re.IGNORECASE),
    RemedyKind.RELAX_PDB: re.compile(r"pdb|disruption ?budget", re.IGNORECASE),
    RemedyKind.RAISE_HPA: re.compile(r"hpa|horizontal ?pod ?autoscaler|autoscal", re.IGNORECASE),
    RemedyKind.FIX_METRICS: re.compile(r"metrics", re.IGNORECASE),
    RemedyKind.RAISE_QUOTA: re.compile(r"quota", re.IGNORECASE),
    RemedyKind.FIX_NETWORK_POLICY: re.compile(r"network ?polic|authorization polic", re.IGNORECASE),
    RemedyKind.FIX_SERVICE: re.compile(rf"{FIX}.*(?:service(?! ?account)|selector|endpoint)", re.IGNORECASE),
    RemedyKind.FIX_PROBE: re.compile(r"probe", re.IGNORECASE),
    RemedyKind.FIX_CERTIFICATE: re.compile(r"certificate|\bcert\b|\btls\b", re.IGNORECASE),
    RemedyKind.EXTEND_DEADLINE: re.compile(r"deadline", re.IGNORECASE),
    RemedyKind.RERUN_JOB: re.compile(r"(?:rerun|retry|restart|recreate|re-create) (?:cron )?job", re.IGNORECASE),
    RemedyKind.RESUME: re.compile(r"resume|unsuspend|unpause", re.IGNORECASE),
    RemedyKind.RESTORE_OPERATOR: re.compile(r"operator|\bcsv\b|subscription", re.IGNORECASE),
    RemedyKind.FIX_WEBHOOK: re.compile(r"webhook", re.IGNORECASE),
    RemedyKind.REMOVE_FINALIZER: re.compile(r"finali[sz]er", re.IGNORECASE),
    RemedyKind.DEFRAGMENT: re.compile(r"defrag", re.IGNORECASE),
    RemedyKind.ROTATE_CREDENTIALS: re.compile(r"(?:rotate|refresh|sync|restore|update|fix|renew).*(?:credential|secret|password|token)", re.IGNORECASE),
    RemedyKind.DETACH_VOLUME: re.compile(r"detach|volume ?attachment", re.IGNORECASE),
    RemedyKind.FIX_RBAC: re.compile(r"rbac|role|permission", re.IGNORECASE),
    RemedyKind.FIX_SECURITY: re.compile(r"security ?context|pod ?security|permission", re.IGNORECASE),
    RemedyKind.FIX_DNS: re.compile(r"dns", re.IGNORECASE),
}  # fmt: skip
NOT_MEANT: Mapping[RemedyKind, re.Pattern[str]] = {
    RemedyKind.ROLLBACK: re.compile(r"config|helm|git\b", re.IGNORECASE),
    RemedyKind.FIX_CONFIG: re.compile(r"webhook|autoscal|probe|network", re.IGNORECASE),
    RemedyKind.SCALE_UP: re.compile(r"node", re.IGNORECASE),
    RemedyKind.SCALE_DOWN: re.compile(r"node|up\b", re.IGNORECASE),
    RemedyKind.FIX_RBAC: re.compile(r"rollback|rollout", re.IGNORECASE),
    RemedyKind.RECREATE_CLAIM: re.compile(r"expand|clean", re.IGNORECASE),
    RemedyKind.RESTART_POD: re.compile(r"disruption", re.IGNORECASE),
    RemedyKind.ROTATE_CREDENTIALS: re.compile(r"pull|certificate", re.IGNORECASE),
}
GITOPS_SAFE = frozenset(
    {RemedyKind.RESTART, RemedyKind.RESTART_POD, RemedyKind.CORDON, RemedyKind.DRAIN, RemedyKind.CLEAN_NODE, RemedyKind.RESTART_NODE_AGENT,
     RemedyKind.ADD_NODE, RemedyKind.UNTAINT, RemedyKind.UNCORDON, RemedyKind.REVERT_COMMIT, RemedyKind.RERUN_JOB, RemedyKind.DEFRAGMENT,
     RemedyKind.FIX_CERTIFICATE, RemedyKind.FIX_PULL_SECRET, RemedyKind.EXPAND_CLAIM, RemedyKind.REMOVE_FINALIZER, RemedyKind.DETACH_VOLUME,
     RemedyKind.CLEAN_CLAIM, RemedyKind.RECREATE_CLAIM, RemedyKind.FIX_DNS, RemedyKind.ROTATE_CREDENTIALS}
)  # fmt: skip
"""Kinds of help that do not edit what a GitOps tool keeps in place."""


def words_of(name: str) -> str:
    """`IncreaseMemoryLimits`, `increase-memory-limits-v1` alike become `increase memory limits`."""
    parts = [w for w in CAMEL.split(name) if w]
    words = " ".join(w for w in parts if not re.fullmatch(r"v?\d+(?:\.\d+)*", w)).lower()
    return KINDS.sub(lambda m: m[0].replace(" ", ""), words)


def remedy_of(name: str, wanted: tuple[RemedyKind, ...]) -> RemedyKind | None:
    """The first wanted remedy that a name speaks of."""
    words = words_of(name)
    for remedy in wanted:
        pattern, excluded = NAMES[remedy], NOT_MEANT.get(remedy)
        if pattern.search(words) and not (excluded and excluded.search(words)):
            return remedy
    return None

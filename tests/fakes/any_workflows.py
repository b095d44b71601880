"""Workflows, contexts and queries of every kind, for property tests: few values, so that they meet."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import workflow
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext

SIGNALS = ["CrashLoopBackOff", "OOMKilled", "oomkilled", "*"]
SEVERITIES = ["critical", "HIGH", "warning", "medium", "*"]
KINDS = ["apps/v1/Deployment", "deployment", "v1/Pod", "batch/v1/Job", "*"]
DETECTED = st.fixed_dictionaries(
    {},
    optional={
        "gitops_managed": st.sampled_from([True, "true"]),
        "gitOpsTool": st.sampled_from(["argocd", "Flux", "*"]),
        "stateful": st.sampled_from([True, False]),
    },
)
CUSTOM = st.dictionaries(
    st.sampled_from(["team", "gitops_aware", "risk_tolerance"]),
    st.lists(st.sampled_from(["true", "a", "B", "low", "*"]), min_size=1, max_size=2).map(tuple),
    max_size=2,
)


def some(values):
    return st.lists(st.sampled_from(values), min_size=1, max_size=3).map(tuple)


LABELS = st.fixed_dictionaries(
    {},
    optional={
        "signal_type": some(SIGNALS),
        "severity": some(SEVERITIES),
        "component": some(KINDS),
        "environment": some(["production", "staging", "*"]),
        "priority": some(["P0", "p1", "*"]),
        "risk_tolerance": some(["low", "high"]),
    },
)
WORKFLOWS = st.lists(
    st.builds(
        lambda action, declared, detected, custom: workflow(
            "x", action, labels=declared, detected_labels=detected, custom_labels=custom
        ),
        st.sampled_from(["Restart", "restart", "Scale"]),
        LABELS,
        DETECTED,
        CUSTOM,
    ),
    max_size=24,
).map(lambda made: [replace(w, workflow_id=f"w-{n * 7 % 25:02}") for n, w in enumerate(made)])
CONTEXTS = st.builds(
    SelectionContext,
    environment=st.sampled_from(["", "unknown", "Production", "staging"]),
    priority=st.sampled_from(["", "P0", "P1"]),
    severity=st.sampled_from(["", "unknown", "critical", "medium"]),
    signal_type=st.sampled_from(["", "OOMKilled", "Evicted"]),
    risk_tolerance=st.sampled_from(["", "low"]),
    components=st.lists(
        st.sampled_from([("v1", "Pod"), ("apps/v1", "Deployment"), ("", "job"), ("example.com/v1", "Job")]),
        max_size=3,
    ).map(tuple),
    detected_labels=st.fixed_dictionaries(
        {},
        optional={
            "gitOpsManaged": st.sampled_from([True, False, None]),
            "gitops_tool": st.sampled_from(["argocd", "flux", "", None]),
            "stateful": st.booleans(),
        },
    ),
    custom_labels=CUSTOM,
)
QUERIES = st.builds(
    SearchQuery,
    st.sampled_from(["OOMKilled", "CrashLoopBackOff", "Evicted"]),
    st.sampled_from([Severity.CRITICAL, Severity.MEDIUM, Severity.UNKNOWN]),
    min_confidence=st.sampled_from([0.0, 0.45, 0.7, 0.95]),
    max_results=st.integers(1, 4),
)

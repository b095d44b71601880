"""Strategies for objects as a hostile or broken API may return them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KEYS = st.sampled_from(
    (
        "metadata", "name", "namespace", "labels", "annotations", "ownerReferences", "managedFields", "fieldsV1", "f:spec",
        "spec", "status", "containers", "initContainers", "containerStatuses", "initContainerStatuses", "state", "waiting",
        "terminated", "running", "lastState", "conditions", "type", "reason", "message", "env", "value", "volumes",
        "persistentVolumeClaim", "claimName", "configMap", "data", "template", "selector", "matchLabels",
        "matchExpressions", "operator", "values", "key", "replicas", "readyReplicas", "kind", "apiVersion", "controller",
        "uid", "creationTimestamp", "deletionTimestamp", "time", "involvedObject", "regarding", "series", "count",
        "firstTimestamp", "lastTimestamp", "eventTime", "subsets", "addresses", "targetRef", "taints", "allocatable",
        "hard", "used", "ports", "metrics", "scaleTargetRef", "currentMetrics", "resource", "exitCode", "restartCount",
        "projected", "sources", "envFrom", "valueFrom", "phase", "nodeName", "tolerations", "volumeMounts", "revision",
        "requests", "resources", "storage", "claimRef", "nodeAffinity", "required", "nodeSelectorTerms",
    )
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=False),
    st.text(max_size=30),
    st.sampled_from(
        ("Pod", "True", "False", "Ready", "2026-06-04T15:30:00Z", "9999-12-31T23:59:59-23:00", "In", "Always")
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, st.text(max_size=8)), inner, max_size=6)
    ),
    max_leaves=40,
)
OBJECTS = st.dictionaries(st.one_of(KEYS, st.text(max_size=8)), VALUES, max_size=10)

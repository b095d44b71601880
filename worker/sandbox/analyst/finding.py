"""What a rule concludes: the cause, the object to change, and what would help."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.domain.values.objects import ObjectRef


class RemedyKind(enum.StrEnum):
    """Kinds of help, free of any catalog's names for them."""

    MORE_MEMORY = "more memory"
    MORE_CPU = "more cpu"
    ROLLBACK = "rollback"
    REVERT_COMMIT = "revert commit"
    RESTART = "restart workload"
    RESTART_POD = "restart pod"
    FIX_CONFIG = "fix configuration"
    MORE_CONNECTIONS = "more connections"
    SCALE_DOWN = "scale down"
    SCALE_UP = "scale up"
    FIX_IMAGE = "fix image"
    FIX_PULL_SECRET = "fix pull secret"  # noqa: S105 - a kind of help, not a credential
    RESTORE_REFERENCE = "restore configmap or secret"
    EXPAND_CLAIM = "expand claim"
    RECREATE_CLAIM = "recreate claim"
    CLEAN_CLAIM = "clean up claim"
    CORDON = "cordon node"
    DRAIN = "drain node"
    CLEAN_NODE = "clean node disk"
    RESTART_NODE_AGENT = "restart node agent"
    ADD_NODE = "add node"
    UNTAINT = "remove taint"
    UNCORDON = "uncordon node"
    FIX_PLACEMENT = "fix placement"
    RELAX_PDB = "relax disruption budget"
    RAISE_HPA = "raise autoscaler ceiling"
    FIX_METRICS = "fix metrics"
    RAISE_QUOTA = "raise quota"
    FIX_NETWORK_POLICY = "fix network policy"
    FIX_SERVICE = "fix service"
    FIX_PROBE = "fix probe"
    FIX_CERTIFICATE = "renew certificate"
    EXTEND_DEADLINE = "extend deadline"
    RERUN_JOB = "rerun job"
    RESUME = "resume"
    RESTORE_OPERATOR = "restore operator"
    FIX_WEBHOOK = "fix webhook"
    REMOVE_FINALIZER = "remove finalizer"
    DEFRAGMENT = "defragment"
    ROTATE_CREDENTIALS = "rotate credentials"
    DETACH_VOLUME = "detach volume"
    FIX_RBAC = "fix permissions"
    FIX_SECURITY = "fix security context"
    FIX_DNS = "restart dns"


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion of a rule.

    `symptoms` are signal names from most to least fitting. `certainty` is 0..1. `target` is the object to change,
    `workload` the one whose pods suffer or must be touched. `traits` are concepts that hold and `denied` ones that are
    known not to hold; selection reads the catalog's when-to-use texts against both. `hints` are values for
    parameters by meaning (container, configmap, memory, ...).
    """

    family: str
    summary: str
    target: ObjectRef
    certainty: float
    symptoms: tuple[str, ...] = ()
    remedies: tuple[RemedyKind, ...] = ()
    factors: tuple[str, ...] = ()
    workload: ObjectRef | None = None
    traits: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    hints: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    outcome: str = ""

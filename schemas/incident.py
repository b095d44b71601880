"""The request to analyse one Kubernetes incident. The Gateway publishes it after deduplication (ADR-041)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, ConfigDict, Field, StringConstraints, ValidationInfo, WithJsonSchema
from pydantic.functional_validators import BeforeValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from schemas.enrichment import EnrichmentResults
from schemas.fields import (
    ApiVersion,
    AtMost,
    Flag,
    Id,
    Kind,
    LongText,
    Message,
    Namespace,
    NonBlank,
    Positive,
    Removed,
    ShortText,
    Timestamp,
    Word,
)
from schemas.safety import SafetyContext
from schemas.taxonomy import (
    UNKNOWN_ENVIRONMENT,
    Environment,
    Priority,
    PriorityWord,
    RiskTolerance,
    SeverityWord,
    StormType,
)

CLUSTER_SCOPED_KINDS: Final = frozenset(
    kind.lower()
    for kind in (
        "APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ClusterTrustBundle",
        "ComponentStatus", "CSIDriver", "CSINode", "CustomResourceDefinition", "DeviceClass", "FlowSchema",
        "IngressClass", "IPAddress", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "PriorityClass",
        "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "ServiceCIDR", "StorageClass",
        "StorageVersion", "StorageVersionMigration", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment",
        "VolumeAttributesClass",
    )
)  # fmt: skip
"""Built-in kinds of the Kubernetes API without a namespace, in lower case."""

NAMESPACED_KINDS: Final = frozenset(
    kind.lower()
    for kind in (
        "Binding", "ConfigMap", "ControllerRevision", "CronJob", "CSIStorageCapacity", "DaemonSet", "Deployment",
        "Endpoints", "EndpointSlice", "Event", "HorizontalPodAutoscaler", "Ingress", "Job", "Lease", "LimitRange",
        "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodTemplate", "ReplicaSet",
        "ReplicationController", "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota", "Role", "RoleBinding",
        "Secret", "Service", "ServiceAccount", "StatefulSet",
    )
)  # fmt: skip
"""Built-in kinds of the Kubernetes API that live in a namespace, in lower case."""

_RBAC_KINDS: Final = frozenset({"role", "rolebinding", "clusterrole", "clusterrolebinding"})
_RBAC_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?", re.ASCII)
_DNS_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII
)

ResourceName = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=253),
    Field(json_schema_extra={"pattern": "^[A-Za-z0-9]([A-Za-z0-9:._-]*[A-Za-z0-9])?$"}),
]
"""The form of any name; the exact rule depends on the kind."""

MAX_LISTED: Final = 10_000
"""The most labels, annotations, and resources of a storm."""

OpenMap = Annotated[dict[ShortText, LongText], AtMost(MAX_LISTED)]


def _not_a_recovery(value: Any) -> Any:
    if value is not False:
        raise PydanticCustomError("wrong_kind", "false: recovery requests go to the recovery subject")
    return value


def _as_senders_write_it(schema: dict[str, Any]) -> None:
    """Without `received_time`, and with `signal_name` in place of `signal_type`."""
    for name in ("received_time", "signal_type"):
        schema["required"].remove(name)
    schema["anyOf"] = [{"properties": {name: {}}, "required": [name]} for name in SIGNAL_NAMES]
    about = {
        "description": "The name that newer versions of Kubernaut use for `signal_type`. One of the two is required."
    }
    schema["properties"]["signal_name"] = schema["properties"]["signal_type"] | about


SIGNAL_NAMES: Final = ("signal_type", "signal_name")
"""Both names of the same field, ours first."""


class Signal(Message):
    """What incidents and recoveries have in common: the signal, its resource, and the business context."""

    model_config = ConfigDict(json_schema_extra=_as_senders_write_it)

    incident_id: Id
    """Id of the incident at the sender."""
    remediation_id: Id
    """Id of the remediation request: the key of the result and the correlation id of the audit trail."""
    signal_type: Annotated[NonBlank, StringConstraints(max_length=256)] = Field(
        validation_alias=AliasChoices(*SIGNAL_NAMES)
    )
    """The type of the signal. Free text, often the name of an alert, and not always right."""
    severity: SeverityWord
    """The severity that the sender gives. Aliases are allowed (`warning`, `info`, `error`)."""
    resource_kind: Kind
    """Kind of the resource the signal is about."""
    resource_name: ResourceName
    """Name of that resource: a DNS subdomain; for RBAC kinds, any name that Kubernetes allows for them."""
    resource_namespace: Namespace = Field(default="", validate_default=True)
    """Namespace of that resource. Required for built-in namespaced kinds, empty for cluster scope.

    A custom kind may leave it out: only the cluster knows whether such a kind has one.
    """
    resource_api_version: ApiVersion = ""
    """The apiVersion of that resource, if the kind alone is ambiguous."""
    signal_source: Word = ""
    """The adapter that received the signal, such as `prometheus-alertmanager`."""
    error_message: LongText = ""
    """What went wrong, in the words of the source."""
    description: LongText = ""
    """The longer text of the alert."""
    environment: Environment = UNKNOWN_ENVIRONMENT
    """Deployment environment, such as `production`. It is lower-cased; `unknown` if absent."""
    priority: PriorityWord = Priority.P2
    """Business priority. The subject, not this field, decides the priority lane."""
    risk_tolerance: RiskTolerance | None = None
    """How careful the remediation must be, such as `low`. If absent, workflows are not filtered by it."""
    business_category: Word | None = None
    """Business category. If absent, workflows are not filtered by it."""
    cluster_name: Word = ""
    """Name of the cluster in which the incident happened; may be empty if there is only one."""
    firing_time: Timestamp | None = None
    """When the signal started."""
    received_time: Timestamp
    """When the sender received the signal; by default, the time of the message."""
    first_seen: Timestamp | None = None
    """When this signal was first seen."""
    last_seen: Timestamp | None = None
    """When this signal was last seen."""
    is_duplicate: Flag = False
    """Whether the same signal was seen before."""
    occurrence_count: Positive = 1
    """How often the signal was received; more than once means that the condition persists."""
    is_storm: Flag = False
    """Whether the signal is part of an alert storm."""
    storm_type: StormType | None = None
    """How the storm was recognised."""
    storm_window: ShortText = ""
    """Time window in which the storm was detected, such as `5m`."""
    storm_alert_count: Positive | None = None
    """Number of alerts in the storm."""
    affected_resources: Annotated[tuple[ShortText, ...], AtMost(MAX_LISTED)] = ()
    """Resources that the storm affects."""
    signal_labels: OpenMap = Field(default_factory=dict)
    """Labels of the signal."""
    signal_annotations: OpenMap = Field(default_factory=dict)
    """Annotations of the signal."""
    safety_context: SafetyContext | None = None
    """Limits for the remediation, set by the sender."""
    expires_at: Timestamp | None = None
    """Time after which a decision is of no use. The incident is then escalated to a human."""
    safety_elsewhere: Annotated[None, Removed("safety_context")] = Field(
        default=None,
        exclude=True,
        validation_alias=AliasChoices("safetyContext", "safety_constraints", "safetyConstraints"),
    )
    failed_action: Annotated[None, Removed("previous_execution")] = Field(default=None, exclude=True)
    failure_context: Annotated[None, Removed("error_message")] = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _one_signal(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            named = [data[name] for name in SIGNAL_NAMES if data.get(name) is not None]
            if len(named) == 2 and named[0] != named[1]:
                raise PydanticCustomError(
                    "spelt_twice", "only one of {keys}", {"keys": " and ".join(SIGNAL_NAMES)}
                )
        return data

    @field_validator("resource_name", mode="after")
    @classmethod
    def _legal_name(cls, value: str, info: ValidationInfo) -> str:
        rbac = str(info.data.get("resource_kind", "")).lower() in _RBAC_KINDS
        if not (_RBAC_NAME if rbac else _DNS_NAME).fullmatch(value):
            raise PydanticCustomError("dns_name", "a DNS subdomain: lower-case letters, digits, '-' and '.'")
        return value

    @field_validator("resource_namespace", mode="after")
    @classmethod
    def _present_where_needed(cls, value: str, info: ValidationInfo) -> str:
        kind = str(info.data.get("resource_kind", ""))
        if not value and kind.lower() in NAMESPACED_KINDS:
            raise PydanticCustomError(
                "namespace_required", "a namespace: a {kind} lives in one", {"kind": kind}
            )
        return value

    @field_validator("risk_tolerance", "business_category", mode="after")
    @classmethod
    def _blank_is_absent(cls, value: str | None) -> str | None:
        return value or None

    @property
    def is_cluster_scoped(self) -> bool:
        """True if the resource is known to have no namespace (a given one is then ignored)."""
        return self.resource_kind.lower() in CLUSTER_SCOPED_KINDS or not self.resource_namespace


class IncidentRequest(Signal):
    """Analyse an incident: `rca.request.incident`, with a suffix `.p0` to `.p3` for a priority lane."""

    enrichment_results: EnrichmentResults | None = None
    """Facts that the sender has gathered. The worker gathers its own."""
    is_recovery_attempt: Annotated[
        Literal[False], BeforeValidator(_not_a_recovery), WithJsonSchema({"const": False})
    ] = Field(default=False, exclude=True)
    """Always false: a recovery request that is read as an incident would lose what failed before."""


def request_digest(request: Signal) -> str:
    """SHA-256 of the canonical request: the same question has the same digest.

    Canonical is JSON with sorted keys, without spaces, without fields that have their default value, and
    without `received_time`, which differs when a sender publishes the same question again.
    """
    asked = request.model_dump(mode="json", exclude_defaults=True, exclude={"received_time"})
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()

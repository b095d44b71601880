"""The fields of built-in kinds that a reader does not need, by the types of the Kubernetes API reference.

Whether a field is a default or bookkeeping depends on its type: `restartPolicy: Always` makes a sidecar of an
init container, and a custom resource has no defaults of ours. So each type names its own, and the types of
its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.domain.cluster.kinds import BUILT_IN
from worker.domain.values.objects import Manifest


@dataclass(frozen=True, slots=True)
class ApiType:
    """`fields`: types of the values of fields, or of their elements.

    `defaults` and `dropped` need not be shown.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()

    def child(self, name: str) -> ApiType:
        """The type of a field."""
        return TYPES.get(self.fields.get(name, ""), UNTYPED)

    def shows(self, name: str, value: Any) -> bool:
        """True if a reader needs the field."""
        if name in self.dropped:
            return False
        default = self.defaults.get(name)
        return default is None or type(value) is not type(default) or value != default


UNTYPED = ApiType()
META = ApiType()
"""The metadata of an object, or of a template in it."""
POD_SPEC = ApiType(
    {
        "containers": "Container",
        "initContainers": "Container",
        "ephemeralContainers": "Container",
        "volumes": "Volume",
    },
    {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [],
    },
)
CONTAINER = ApiType(
    {
        "ports": "Port",
        "livenessProbe": "Probe",
        "readinessProbe": "Probe",
        "startupProbe": "Probe",
        "lifecycle": "Lifecycle",
    },
    {
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
)
STRATEGY = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"}
TEMPLATE = {"template": "PodTemplateSpec"}
CONDITIONS = {"conditions": "Condition"}
TYPES: Mapping[str, ApiType] = {
    "ObjectMeta": META,
    "Pod": ApiType({"metadata": "ObjectMeta", "spec": "PodSpec", "status": "PodStatus"}),
    "PodTemplate": ApiType({"metadata": "ObjectMeta", **TEMPLATE}),
    "PodTemplateSpec": ApiType({"metadata": "ObjectMeta", "spec": "PodSpec"}),
    "PodSpec": POD_SPEC,
    "Container": CONTAINER,
    "Lifecycle": ApiType({"postStart": "Handler", "preStop": "Handler"}),
    "Handler": ApiType({"httpGet": "HTTPGet"}),
    "Probe": ApiType({"httpGet": "HTTPGet"}, {"successThreshold": 1}),
    "HTTPGet": ApiType({}, {"scheme": "HTTP"}),
    "Port": ApiType({}, {"protocol": "TCP"}),
    "Volume": ApiType(dict.fromkeys(("configMap", "secret", "projected", "downwardAPI"), "VolumeSource")),
    "VolumeSource": ApiType({}, {"defaultMode": 420}),
    "PodStatus": ApiType(
        {
            **CONDITIONS,
            **dict.fromkeys(
                ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"),
                "ContainerStatus",
            ),
        },
        dropped=frozenset({"hostIP", "hostIPs", "podIPs", "startTime"}),
    ),
    "ContainerStatus": ApiType(
        {"state": "ContainerState", "lastState": "ContainerState"},
        {"lastState": {}},
        frozenset({"containerID"}),
    ),
    "ContainerState": ApiType({"terminated": "Terminated"}),
    "Terminated": ApiType(dropped=frozenset({"containerID"})),
    "Condition": ApiType(dropped=frozenset({"lastProbeTime", "lastHeartbeatTime", "lastUpdateTime"})),
    "Status": ApiType(CONDITIONS),
    "WorkloadStatus": ApiType(
        CONDITIONS, dropped=frozenset({"collisionCount", "fullyLabeledReplicas", "uncountedTerminatedPods"})
    ),
    "DeploymentSpec": ApiType(
        TEMPLATE, {"progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, "strategy": STRATEGY}
    ),
    "StatefulSetSpec": ApiType(
        {**TEMPLATE, "volumeClaimTemplates": "Claim"},
        {"podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10},
    ),
    "Claim": ApiType({"metadata": "ObjectMeta"}),
    "DaemonSetSpec": ApiType(TEMPLATE, {"revisionHistoryLimit": 10}),
    "WorkloadSpec": ApiType(TEMPLATE),
    "CronJobSpec": ApiType({"jobTemplate": "JobTemplate"}),
    "JobTemplate": ApiType({"metadata": "ObjectMeta", "spec": "WorkloadSpec"}),
    "ServiceSpec": ApiType(
        {"ports": "Port"},
        {"internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None"},
    ),
    "Subset": ApiType({"ports": "Port"}),
    "NetworkPolicySpec": ApiType({"ingress": "Subset", "egress": "Subset"}),
    "NodeStatus": ApiType(
        {**CONDITIONS, "nodeInfo": "NodeInfo", "capacity": "Capacity", "allocatable": "Capacity"},
        dropped=frozenset({"daemonEndpoints", "images", "volumesAttached", "volumesInUse"}),
    ),
    "NodeInfo": ApiType(dropped=frozenset({"bootID", "machineID", "systemUUID"})),
    "Capacity": ApiType({}, {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}),
}
SPECS = {
    "Deployment": "DeploymentSpec",
    "StatefulSet": "StatefulSetSpec",
    "DaemonSet": "DaemonSetSpec",
    "CronJob": "CronJobSpec",
    "Service": "ServiceSpec",
    "NetworkPolicy": "NetworkPolicySpec",
    **dict.fromkeys(("ReplicaSet", "ReplicationController", "Job"), "WorkloadSpec"),
}
FURTHER = {"Endpoints": {"subsets": "Subset"}, "EndpointSlice": {"ports": "Port"}}
GROUPS = {(info.kind, info.api_version.rpartition("/")[0]) for info, _ in BUILT_IN}
KINDS = {kind for kind, _ in GROUPS}


def type_of(manifest: Manifest) -> ApiType:
    """The type of a built-in object in any version of its group; all fields of other objects are shown."""
    kind, api_version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(kind, str) or kind not in KINDS:
        return UNTYPED
    if isinstance(api_version, str) and (kind, api_version.rpartition("/")[0]) not in GROUPS:
        return UNTYPED
    if kind in TYPES:
        return TYPES[kind]
    status = "NodeStatus" if kind == "Node" else "WorkloadStatus" if kind in SPECS else "Status"
    return ApiType(
        {"metadata": "ObjectMeta", "spec": SPECS.get(kind, ""), "status": status, **FURTHER.get(kind, {})}
    )

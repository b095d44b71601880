"""Built-in kinds that need no discovery: their group versions are stable in every supported Kubernetes release."""

from __future__ import annotations

from collections.abc import Mapping

from worker.domain.values.objects import KindInfo

# api version: "Kind plural [short names]"; a * marks cluster scope ("kubectl api-resources").
_STABLE = {
    "v1": (
        "ConfigMap configmaps cm",
        "Endpoints endpoints ep",
        "Event events ev",
        "LimitRange limitranges limits",
        "Namespace* namespaces ns",
        "Node* nodes no",
        "PersistentVolume* persistentvolumes pv",
        "PersistentVolumeClaim persistentvolumeclaims pvc",
        "Pod pods po",
        "ReplicationController replicationcontrollers rc",
        "ResourceQuota resourcequotas quota",
        "Secret secrets",
        "Service services svc",
        "ServiceAccount serviceaccounts sa",
    ),
    "apps/v1": (
        "ControllerRevision controllerrevisions",
        "DaemonSet daemonsets ds",
        "Deployment deployments deploy",
        "ReplicaSet replicasets rs",
        "StatefulSet statefulsets sts",
    ),
    "autoscaling/v2": ("HorizontalPodAutoscaler horizontalpodautoscalers hpa",),
    "batch/v1": ("CronJob cronjobs cj", "Job jobs"),
    "discovery.k8s.io/v1": ("EndpointSlice endpointslices",),
    "networking.k8s.io/v1": (
        "Ingress ingresses ing",
        "IngressClass* ingressclasses",
        "NetworkPolicy networkpolicies netpol",
    ),
    "policy/v1": ("PodDisruptionBudget poddisruptionbudgets pdb",),
    "rbac.authorization.k8s.io/v1": (
        "ClusterRole* clusterroles",
        "ClusterRoleBinding* clusterrolebindings",
        "Role roles",
        "RoleBinding rolebindings",
    ),
    "scheduling.k8s.io/v1": ("PriorityClass* priorityclasses pc",),
    "storage.k8s.io/v1": ("StorageClass* storageclasses sc", "VolumeAttachment* volumeattachments"),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition* customresourcedefinitions crd crds",),
}


def _by_name() -> dict[str, KindInfo]:
    table = {}
    for api_version, lines in _STABLE.items():
        for line in lines:
            kind, plural, *short = line.split()
            name = kind.rstrip("*")
            info = KindInfo(name, api_version, plural, namespaced=not kind.endswith("*"))
            table.update(dict.fromkeys([name.lower(), plural, *short], info))
    return table


WELL_KNOWN: Mapping[str, KindInfo] = _by_name()
"""Kind, plural and short names in lower case."""

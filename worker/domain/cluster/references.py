"""What objects refer to, by name and by label.

A pod names the ConfigMaps, Secrets and claims it cannot start without (Kubernetes API, PodSpec). Label
selectors (`metav1.LabelSelector`) also have a text form, for list calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, sequence, strings, text
from worker.domain.values.errors import or_none
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Cluster


@dataclass(frozen=True, slots=True)
class References:
    """Names by kind, each once, in the order of the spec. `optional` holds those a pod can start without."""

    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    optional: frozenset[str] = field(default=frozenset())


def references_of(pod_spec: Mapping[str, Any], pod: str = "") -> References:
    """All objects that a pod spec names in volumes, environment and pull secrets.

    `pod` is the name of the pod: the claims of its generic ephemeral volumes are named after it.
    """
    found: dict[str, dict[str, bool]] = {"configMap": {}, "secret": {}, "claim": {}}
    for kind, name, optional in _mentions(pod_spec, pod):
        if name:
            found[kind][name] = found[kind].get(name, True) and optional
    optional_names = {n for names in found.values() for n, optional in names.items() if optional}
    return References(
        tuple(found["configMap"]), tuple(found["secret"]), tuple(found["claim"]), frozenset(optional_names)
    )


def _mentions(pod_spec: Mapping[str, Any], pod: str) -> Iterator[tuple[str, str, bool]]:
    for volume in mappings(pod_spec.get("volumes")):
        if is_token_volume(volume):
            continue
        yield "claim", text(dig(volume, "persistentVolumeClaim", "claimName")), False
        if pod and "ephemeral" in volume:
            yield "claim", f"{pod}-{text(volume.get('name'))}", False
        sources = [volume, *mappings(dig(volume, "projected", "sources"))]
        for source in sources:
            config, secret = mapping(source.get("configMap")), mapping(source.get("secret"))
            yield "configMap", text(config.get("name")), config.get("optional") is True
            yield (
                "secret",
                text(secret.get("secretName")) or text(secret.get("name")),
                secret.get("optional") is True,
            )
    for pull in mappings(pod_spec.get("imagePullSecrets")):
        yield "secret", text(pull.get("name")), False
    for container in mappings(pod_spec.get("initContainers")) + mappings(pod_spec.get("containers")):
        yield from _environment(container)


def _environment(container: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    refs = [(mapping(e), "Ref") for e in mappings(container.get("envFrom"))]
    refs += [(mapping(e.get("valueFrom")), "KeyRef") for e in mappings(container.get("env"))]
    for holder, suffix in refs:
        for kind in ("configMap", "secret"):
            ref = mapping(holder.get(f"{kind}{suffix}"))
            yield kind, text(ref.get("name")), ref.get("optional") is True


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """True if a selector matches labels: `{}` matches everything, null (None) nothing.

    An operator the API does not document matches nothing.
    """
    if not isinstance(selector, dict):
        return False
    for key, value in mapping(selector.get("matchLabels")).items():
        if labels.get(key) != value:
            return False
    return all(_holds(term, labels) for term in mappings(selector.get("matchExpressions")))


def _holds(term: dict[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = text(term.get("key")), term.get("operator")
    values = sequence(term.get("values"))
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    return operator == "DoesNotExist" and key not in labels


def selector_text(selector: Any) -> str:
    """A selector in the syntax of list calls, empty for one that selects everything or nothing.

    A plain map (Service, ReplicationController) is read as `matchLabels`.
    """
    found = mapping(selector)
    plain = strings(
        found.get("matchLabels") if "matchLabels" in found or "matchExpressions" in found else found
    )
    terms = [f"{key}={value}" for key, value in plain.items()]
    for term in mappings(found.get("matchExpressions")):
        key, operator = text(term.get("key")), term.get("operator")
        values = ",".join(text(v) for v in sequence(term.get("values")))
        if operator in {"In", "NotIn"}:
            terms.append(f"{key} {str(operator).lower()} ({values})")
        elif operator in {"Exists", "DoesNotExist"}:
            terms.append(key if operator == "Exists" else f"!{key}")
    return ",".join(terms)


async def selector_of(cluster: Cluster, workload: ObjectRef) -> str:
    """The selector of the pods and revisions of a workload, for list calls.

    Empty if the workload has none, or one that cannot be read.
    """
    return selector_text(dig(await or_none(cluster.get(workload)), "spec", "selector"))


def is_token_volume(item: Any) -> bool:
    """True if a volume is the one every pod gets for its service account."""
    volume = mapping(item)
    return text(volume.get("name")).startswith("kube-api-access-") and bool(
        sequence(mapping(volume.get("projected")).get("sources"))
    )

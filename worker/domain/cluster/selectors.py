"""Label selectors of the Kubernetes API (`metav1.LabelSelector`), and their text form for list calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, sequence, strings, text
from worker.domain.values.errors import ClusterError
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Cluster


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
    """The selector of the pods and revisions of a workload, for list calls; empty if it has none or cannot
    be read.
    """
    try:
        return selector_text(dig(await cluster.get(workload), "spec", "selector"))
    except ClusterError:
        return ""

"""What a service account may do, by RBAC objects: the rules of ClusterRoles, summed up as the API server does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from worker.domain.values.objects import Manifest

SHIPPED = ("rbac.yaml", "custom-owners.yaml")
"""Copies of the files in `deploy/kubernetes` that give the worker its rights."""


@dataclass(frozen=True, slots=True)
class Rights:
    """PolicyRules (rbac.authorization.k8s.io/v1) that hold in every namespace and for cluster scope."""

    rules: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, account: str, objects: Iterable[Manifest]) -> Rights:
        """The rights that ClusterRoleBindings among the objects give to a service account of that name."""
        known = list(objects)
        roles = {o["metadata"]["name"]: o for o in known if o["kind"] == "ClusterRole"}
        bound = [
            roles[binding["roleRef"]["name"]]
            for binding in known
            if binding["kind"] == "ClusterRoleBinding" and account in _accounts(binding)
        ]
        return cls(tuple(rule for role in bound for rule in _rules(role, roles.values())))

    def allow(self, verb: str, group: str, resource: str, name: str = "") -> bool:
        """True if a rule allows the verb. A subresource is named as in `pods/log`."""
        return any(
            _has(rule, "verbs", verb)
            and _has(rule, "apiGroups", group)
            and _has(rule, "resources", resource)
            and name in (rule.get("resourceNames") or (name,))
            for rule in self.rules
        )


@cache
def shipped_rights() -> Rights:
    """Return what the shipped deployment allows the worker."""
    folder = files("worker") / "sandbox" / "rbac"
    texts = [(folder / name).read_text(encoding="utf-8") for name in SHIPPED]
    return Rights.of("rca-worker", [found for text in texts for found in yaml.safe_load_all(text) if found])


def _accounts(binding: Manifest) -> list[str]:
    return [s["name"] for s in binding.get("subjects") or () if s["kind"] == "ServiceAccount"]


def _rules(role: Manifest, roles: Iterable[Manifest]) -> Iterator[Mapping[str, Any]]:
    """The rules of a role; of an aggregated one those of the roles that it selects, as the controller fills them in."""
    aggregation = role.get("aggregationRule")
    if not aggregation:
        yield from role.get("rules") or ()
        return
    for other in roles:
        labels = (other["metadata"].get("labels") or {}).items()
        if any(selector["matchLabels"].items() <= labels for selector in aggregation["clusterRoleSelectors"]):
            yield from other.get("rules") or ()


def _has(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    values = rule.get(field) or ()
    return wanted in values or "*" in values

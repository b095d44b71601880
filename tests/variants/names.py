"""Renames what an incident is made of: objects and namespaces everywhere, workflows of the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from random import Random

from tests.variants.content import CaseContent, map_text, name_of, namespace_of
from worker.domain.cluster.references import references_of
from worker.domain.values.workflows import WORD_BORDER, Workflow

SYSTEM = {"", "default", "kube-system", "kube-public", "kube-node-lease"}
"""Namespaces whose names, and the names of what is in them, have a meaning to Kubernetes."""
FIXED_KINDS = {"APIService", "CustomResourceDefinition", "Event", "PriorityClass"}
KEPT = frozenset(
    ("apiVersion", "kind", "reason", "type", "uid", "component", "reportingComponent", "resource_kind", "signal_type",
     "alertname", "severity", "priority", "environment", "operator", "effect", "root_cause_keywords", "not_root_cause")
)  # fmt: skip
"""Keys whose values are no names of objects."""
ORDINARY = frozenset(
    [
        "agent",
        "api",
        "app",
        "auth",
        "billing",
        "cache",
        "catalog",
        "collector",
        "config",
        "data",
        "db",
        "default",
        "docs",
        "edge",
        "files",
        "gateway",
        "hub",
        "index",
        "ingress",
        "job",
        "limits",
        "logs",
        "mail",
        "memory",
        "metrics",
        "node",
        "operator",
        "pay",
        "pod",
        "policy",
        "portal",
        "proxy",
        "queue",
        "quota",
        "registry",
        "render",
        "report",
        "rules",
        "search",
        "secret",
        "server",
        "service",
        "session",
        "site",
        "standard",
        "stock",
        "storage",
        "store",
        "test",
        "vault",
        "web",
        "worker",
    ]
)
"""Names that are words of ordinary messages too: there they are replaced only where they stand like a name."""
FIRST = (
    "amber",
    "birch",
    "cobalt",
    "delta",
    "ember",
    "fjord",
    "garnet",
    "heron",
    "indigo",
    "juniper",
    "krill",
    "lotus",
)
SECOND = (
    "wren",
    "moss",
    "quay",
    "reed",
    "slate",
    "tern",
    "umbra",
    "vale",
    "yarrow",
    "zephyr",
    "otter",
    "pine",
)


def rename(content: CaseContent, random: Random) -> CaseContent:
    """New names for namespaces, workloads, nodes, configuration, claims and Services, in whatever text they occur."""
    changed = _translator(_new_names(content, random))
    found = content.copy()
    logs = {
        (changed(namespace), changed(pod), changed(container), previous): changed(
            text.decode(errors="replace")
        ).encode()
        for (namespace, pod, container, previous), text in found.logs.items()
    }
    return replace(
        found,
        incident=map_text(found.incident, changed, kept=KEPT),
        objects=map_text(found.objects, changed, kept=KEPT),
        logs=logs,
        expected=map_text(found.expected, changed, kept=KEPT | {"workflows"}),
    )


def _new_names(content: CaseContent, random: Random) -> dict[str, str]:
    system = {name_of(o) for o in content.objects if namespace_of(o) in SYSTEM and o["kind"] != "Node"}
    system -= {name_of(o) for o in content.of("Namespace")}
    own = {
        name_of(o)
        for o in content.objects
        if not o["metadata"].get("ownerReferences")
        and o["kind"] not in FIXED_KINDS
        and (namespace_of(o) not in SYSTEM or o["kind"] in {"Node", "Namespace"})
    }
    own |= {namespace_of(o) for o in content.objects}
    old = sorted(own - system - SYSTEM - _misspelt(content))
    words = [f"{a}-{b}" for a in FIRST for b in SECOND]
    random.shuffle(words)
    return dict(zip(old, words, strict=False))


def _misspelt(content: CaseContent) -> set[str]:
    """Names of ConfigMaps that a reference nearly has: with names of another sort they would not be alike any more."""
    there = {name_of(o) for o in content.of("ConfigMap")}
    wanted = {
        name for pod in content.of("Pod") for name in references_of(pod["spec"], name_of(pod)).config_maps
    }
    return {near for name in wanted - there for near in get_close_matches(name, there, 3, 0.7)}


def _translator(names: Mapping[str, str]) -> Callable[[str], str]:
    """Replaces whole names, the longest first; a pod's name begins with that of its workload."""
    if not names:
        return lambda text: text
    listed = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    whole = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])")

    def translate(text: str) -> str:
        prose = " " in text

        def new(match: re.Match[str]) -> str:
            name = match[0]
            before, after = text[: match.start()][-1:], text[match.end() :][:2]
            like_a_name = before in {"/", "-", ":", '"', "'"} or bool(re.match(r"[-.:/][a-z0-9]", after))
            ordinary = prose and (len(name) < 3 or name in ORDINARY)
            return name if ordinary and not like_a_name else names[name]

        return whole.sub(new, text)

    return translate


def rename_workflows(content: CaseContent, random: Random) -> CaseContent:
    """The catalog of another site: other ids and titles, and types of action in another spelling."""
    numbers = random.sample(range(1000, 9999), len(content.workflows))
    ids = {w.workflow_id: f"wf-{n}" for w, n in zip(content.workflows, numbers, strict=True)}
    found = content.copy()
    listed = found.expected["workflows"]
    for key in ("acceptable", "wrong"):
        listed[key] = [ids.get(w, w) for w in listed.get(key) or []]
    previous = found.incident.get("previous_execution") or {}
    if isinstance(chosen := previous.get("selected_workflow"), dict):
        chosen["workflow_id"] = ids.get(chosen.get("workflow_id"), chosen.get("workflow_id"))
    return replace(found, workflows=tuple(_renamed(w, ids[w.workflow_id]) for w in found.workflows))


def _renamed(workflow: Workflow, identity: str) -> Workflow:
    action = WORD_BORDER.sub("_", workflow.action_type).lower()
    return replace(workflow, workflow_id=identity, title="", action_type=action)

"""Finds labels that no incident can match: their workflow would never be offered, and nobody would notice.

Environments and signal types are open vocabularies, so only near misses of well-known values are reported. An
unknown severity and an empty value are errors, everything else is a warning.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping

from schemas.enrichment import DETECTED_LABELS, snake_case
from schemas.taxonomy import Priority, Severity, SignalType, normalize_severity
from worker.adapters.file_catalog.yaml_documents import CatalogProblem, Location, YamlDocument
from worker.domain.catalog.documents import DESCRIPTION, WorkflowDocument
from worker.domain.catalog.selection import DETECTED_TEXTS, label_name
from worker.domain.cluster.kinds import canonical_kind
from worker.domain.values.workflows import LABELS, WILDCARD, Workflow

SEVERITIES = tuple(level for level in Severity if level is not Severity.UNKNOWN)
ENVIRONMENTS = ("production", "staging", "development", "test")
TEXTS: Mapping[str, tuple[str, ...]] = {
    "gitops_tool": ("argocd", "flux"),
    "pod_security_level": ("privileged", "baseline", "restricted"),
    "service_mesh": ("istio", "linkerd"),
}
"""The values that detection can find for these labels (DD-WORKFLOW-001)."""
FLAGS = ("true", "false")
TYPO = 0.85  # similarity from which a word counts as a misspelling of another


def label_problems(
    written: WorkflowDocument, document: YamlDocument, at: Location
) -> Iterator[CatalogProblem]:
    """Errors and warnings about labels and detected labels."""
    for name, values in written.labels.items():
        label, here = label_name(name), (*at, "labels", name)
        if label not in LABELS:
            yield document.problem(
                here,
                "not a label that selects workflows: it only ranks them, as custom_labels do",
                warning=True,
            )
        wrong = [v for v in values if v.strip() not in {"", WILDCARD} and normalize_severity(v) is None]
        if label == "severity" and wrong:
            yield document.problem(
                here, f"not a severity: {', '.join(wrong)}; use {', '.join(SEVERITIES)} or {WILDCARD}"
            )
        if any(not v.strip() for v in values):
            yield document.problem(here, "an empty value matches no incident: remove the label, or use *")
        for doubt in _doubts(label, values):
            yield document.problem(here, doubt, warning=True)
    for name, value in written.detected_labels.items():
        if doubt := _detected_doubt(snake_case(name), value.strip().lower()):
            yield document.problem((*at, "detected_labels", name), doubt, warning=True)


def _doubts(label: str, values: Iterable[str]) -> Iterator[str]:
    check = CHECKS.get(label)
    for value in values if check else ():
        word = value.strip()
        if check and word and word != WILDCARD and (doubt := check(word)):
            yield f"{word} matches no incident: {doubt}"


def _severity(word: str) -> str:
    return "an unknown severity does not select workflows" if word.lower() == Severity.UNKNOWN else ""


def _priority(word: str) -> str:
    return "" if word.upper() in set(Priority) else f"priorities are {', '.join(Priority)}"


def _component(word: str) -> str:
    parts = word.split("/")
    kind = parts[-1]
    if len(parts) > 3 or not all(part.strip() for part in parts) or WILDCARD in word:
        return "a component is * or group/version/Kind, such as apps/v1/Deployment"
    meant = canonical_kind(kind)
    return "" if meant.lower() == kind.lower() else f"the kind is {meant}"


CHECKS: Mapping[str, Callable[[str], str]] = {
    "component": _component,
    "environment": lambda word: _misspelt(word, ENVIRONMENTS),
    "priority": _priority,
    "severity": _severity,
    "signal_type": lambda word: _misspelt(word, map(str, SignalType)),
}


def _misspelt(word: str, known: Iterable[str]) -> str:
    spelt = {value.lower(): value for value in known}
    lowered = word.lower()
    if any(value in lowered for value in spelt):  # `KubeNodeNotReady` is a different name
        return ""
    near = difflib.get_close_matches(lowered, spelt, 1, TYPO)
    return f"did you mean {spelt[near[0]]}?" if near else ""


def _detected_doubt(label: str, value: str) -> str:
    if label not in DETECTED_LABELS:
        return f"not a detected label: use {', '.join(DETECTED_LABELS)}"
    allowed = TEXTS.get(label, ()) if label in DETECTED_TEXTS else FLAGS
    if not allowed or value == WILDCARD or value in allowed:
        return ""
    return f"{value or 'an empty value'} matches no target: use one of {', '.join(allowed)}"


def description_problems(workflow: Workflow, document: YamlDocument) -> Iterator[CatalogProblem]:
    """Warnings about a description that a `<signal_type> <severity>` query would not find (DD-LLM-001)."""
    form = "should begin with `<signal_type> <severity>: `, as searches do"
    match = DESCRIPTION.match(workflow.description)
    if match is None:
        yield document.problem(("description",), form, warning=True)
        return
    declared = {s.lower() for s in workflow.labels.get("signal_type", ())}
    if declared and WILDCARD not in declared and match["signal"].lower() not in declared:
        message = f"{form}; {match['signal']} is not in labels.signal_type"
        yield document.problem(("description",), message, warning=True)
    if normalize_severity(match["severity"]) is None:
        yield document.problem(
            ("description",), f"{form}; {match['severity']} is not a severity", warning=True
        )

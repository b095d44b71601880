"""Label and field selectors of the Kubernetes API, as predicates over objects.

Label selectors follow "Labels and Selectors" of the Kubernetes documentation, with `>` and `<` as the API
server knows them. Field selectors follow "Field Selectors": built-in kinds offer a closed list of fields
each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure, bad_request

MAX_SELECTOR_CHARS = 4096
LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
NEXT = r"(?:,\s*(?=\S)|\Z)"
"""Behind a requirement: a comma and another one, or the end."""
REQUIREMENT = re.compile(
    rf"""!\s*(?P<absent>{LABEL_KEY.pattern})\s*{NEXT}
    |(?P<key>{LABEL_KEY.pattern})(?:
        \s*(?P<equal>==?|!=)\s*(?P<value>{LABEL_VALUE.pattern})
        |\s*(?P<order>[<>])\s*(?P<bound>-?\d{{1,18}})
        |\s+(?P<set>in|notin)\s*\((?P<values>\s*{LABEL_VALUE.pattern}\s*(?:,\s*{LABEL_VALUE.pattern}\s*)*)\)
    )?\s*{NEXT}""",
    re.VERBOSE,
)

METADATA_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
OBJECT_PARTS = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
FIELDS_BY_RESOURCE: Mapping[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "spec.host",
        }
    ),
    "events": frozenset(
        {"reason", "reportingComponent", "source", "type"}
        | {f"involvedObject.{part}" for part in OBJECT_PARTS}
    ),
    "events.events.k8s.io": frozenset(
        {"reason", "reportingController", "type"} | {f"regarding.{part}" for part in OBJECT_PARTS}
    ),
    "namespaces": frozenset({"status.phase"}),
    "nodes": frozenset({"spec.unschedulable"}),
    "services": frozenset({"spec.clusterIP", "spec.type"}),
    "secrets": frozenset({"type"}),
    "replicationcontrollers": frozenset({"status.replicas"}),
    "replicasets.apps": frozenset({"status.replicas"}),
    "jobs.batch": frozenset({"status.successful"}),
}
FIELD_DEFAULTS = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}
FIELD_PATHS = {
    "source": "source.component",
    "spec.host": "spec.nodeName",
    "status.podIPs": "status.podIP",
    "status.successful": "status.succeeded",
}

LabelTest = Callable[[Mapping[str, str]], bool]
FieldTest = Callable[[Manifest], bool]


def label_test(selector: str) -> LabelTest:
    """A test for `labelSelector`; the empty selector matches everything. Raises ApiFailure 400."""
    _check_length(selector)
    requirements, rest = list[LabelTest](), selector.strip()
    while rest:
        found = REQUIREMENT.match(rest)
        if found is None:
            raise bad_request(f"unable to parse requirement: {rest}")
        requirements.append(_requirement(found))
        rest = rest[found.end() :]
    return lambda labels: all(requirement(labels) for requirement in requirements)


def _requirement(found: re.Match[str]) -> LabelTest:
    """A value may be empty: `key=` and `key in (a,)` ask for the empty string."""
    key, absent = found["key"], found["absent"]
    if absent:
        return lambda labels: absent not in labels
    if found["order"]:
        return _compare(key, found["order"], int(found["bound"]))
    if not found["set"] and not found["equal"]:
        return lambda labels: key in labels
    texts = found["values"].split(",") if found["set"] else [found["value"]]
    values, negated = {text.strip() for text in texts}, found["set"] == "notin" or found["equal"] == "!="
    return lambda labels: (labels.get(key) in values) is not negated  # a missing label satisfies `!=`


def field_test(
    selector: str, resource: str, *, namespaced: bool = True, selectable: Iterable[str] = ()
) -> FieldTest:
    """A test for `fieldSelector` of a resource (`pods`, `replicasets.apps`). Raises ApiFailure 400.

    Only fields that the API server knows for the resource can be used; `selectable` are those that a
    CustomResourceDefinition names.
    """
    _check_length(selector)
    own = FIELDS_BY_RESOURCE.get(resource, frozenset()).union(selectable)
    known = own | (METADATA_FIELDS if namespaced else {"metadata.name"})
    tests = []
    for term in filter(None, re.split(r"(?<!\\),", selector)):
        key, operator, value = _field_term(term, selector)
        if key not in known:
            raise _unsupported(key, own or not namespaced)
        tests.append((key, operator == "!=", value))
    return lambda manifest: all(
        (_field_value(manifest, key) == value) is not negated for key, negated, value in tests
    )


def _unsupported(key: str, own: object) -> ApiFailure:
    """The failure for an unknown field. For kinds without own fields, the API server has another wording."""
    if own:
        return bad_request(f"field label not supported: {key}")
    return bad_request(f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _field_value(manifest: Manifest, key: str) -> str:
    current: Any = manifest
    for part in FIELD_PATHS.get(key, key).split("."):
        current = current.get(part) if isinstance(current, dict) else None
    if current is None:
        return FIELD_DEFAULTS.get(key, "")
    return str(current).lower() if isinstance(current, bool) else str(current)


def _field_term(term: str, selector: str) -> tuple[str, str, str]:
    found = re.match(r"(?s)((?:[^\\=!]|\\.)+)(!=|==|=)(.*)\Z", term)
    if not found:
        raise bad_request(f"invalid selector: '{selector}'; can't understand '{term}'")
    key, operator, value = found.groups()
    return key, operator, re.sub(r"\\(.)", r"\1", value)


def _check_length(selector: str) -> None:
    if len(selector) > MAX_SELECTOR_CHARS:
        raise bad_request(f"selector is longer than {MAX_SELECTOR_CHARS} characters")


def _compare(key: str, operator: str, bound: int) -> LabelTest:
    def test(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d{1,18}", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return test

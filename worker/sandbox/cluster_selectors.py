"""Label and field selectors of the Kubernetes API, as predicates over objects.

Label selectors follow "Labels and Selectors" of the Kubernetes documentation, with `>` and `<` as the API server
knows them. Field selectors follow "Field Selectors": built-in kinds offer a closed list of fields each.
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
TOKEN = re.compile(r"\s*(!=|==|=|!|<|>|,|\(|\)|[^\s=!<>,()]+)")
OPERATORS = {"=", "==", "!=", "<", ">", "in", "notin"}

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
    """Return what `labelSelector` asks for; the empty selector matches everything. Raises ApiFailure 400."""
    requirements = _Requirements(selector).parse()
    return lambda labels: all(requirement(labels) for requirement in requirements)


def field_test(
    selector: str, resource: str, *, namespaced: bool = True, selectable: Iterable[str] = ()
) -> FieldTest:
    """Return what `fieldSelector` asks of a resource (`pods`, `replicasets.apps`). Raises ApiFailure 400.

    Only fields that the API server knows for the resource can be asked for; `selectable` are those that a
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
    """Kinds without fields of their own are converted by a function with a text of its own."""
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


class _Requirements:
    """Recursive descent over the tokens of one label selector."""

    def __init__(self, selector: str) -> None:
        _check_length(selector)
        self._tokens = TOKEN.findall(selector)
        self._at = 0

    def parse(self) -> list[LabelTest]:
        requirements: list[LabelTest] = []
        while self._peek():
            requirements.append(self._requirement())
            if self._peek():
                self._expect(",")
                if not self._peek():
                    raise self._failure("", "identifier after ','")
        return requirements

    def _requirement(self) -> LabelTest:
        if self._peek() == "!":
            self._next()
            absent = self._key()
            return lambda labels: absent not in labels
        key = self._key()
        operator = self._peek()
        if operator in {"", ","}:
            return lambda labels: key in labels
        if operator not in OPERATORS:
            raise self._failure(operator, "in, notin, =, ==, !=, gt, lt")
        self._next()
        if operator in {"in", "notin"}:
            return _in_set(key, self._value_set(), negated=operator == "notin")
        if operator in {"<", ">"}:
            return _compare(key, operator, self._integer())
        return _in_set(key, {self._value()}, negated=operator == "!=")

    def _value_set(self) -> set[str]:
        self._expect("(")
        values = {self._value()}
        while self._peek() == ",":
            self._next()
            values.add(self._value())
        self._expect(")")
        return values

    def _key(self) -> str:
        key = self._next()
        if not LABEL_KEY.fullmatch(key):
            raise self._failure(key, "identifier")
        return key

    def _value(self) -> str:
        """A value may be empty: `key=` and `key in (a,)` ask for the empty string."""
        value = "" if self._peek() in {"", ",", ")"} else self._next()
        if not LABEL_VALUE.fullmatch(value):
            raise self._failure(value, "a valid label value")
        return value

    def _integer(self) -> int:
        value = self._next()
        if not re.fullmatch(r"-?\d{1,18}", value):
            raise self._failure(value, "an integer")
        return int(value)

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self._failure(found, f"'{token}'")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    @staticmethod
    def _failure(found: str, expected: str) -> ApiFailure:
        return bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


def _in_set(key: str, values: set[str], *, negated: bool) -> LabelTest:
    """A label that is missing satisfies `!=` and `notin`."""
    if negated:
        return lambda labels: key not in labels or labels[key] not in values
    return lambda labels: key in labels and labels[key] in values


def _compare(key: str, operator: str, bound: int) -> LabelTest:
    def test(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d{1,18}", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return test

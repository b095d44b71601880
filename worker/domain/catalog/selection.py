"""Rules of every catalog: which workflows fit a context, how well, and why the others do not.

Rules (DD-LLM-001, Kubernaut label schema): values match ignoring case, a list is any-of, `*` matches
everything. A label that the workflow does not declare or that the context lacks constrains nothing. Detected
labels that are strings exclude when they differ; boolean ones and custom labels only rank.

Both sides are normalized first (`declared`, `known`), so that matching compares sets of keys.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.enrichment import DetectedLabels, snake_case
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Severity, normalize_severity
from worker.domain.values.workflows import (
    BUSINESS_LABELS,
    LABELS,
    WILDCARD,
    ActionSummary,
    SelectionContext,
    Workflow,
    WorkflowPage,
)

DETECTED = "detected label "
CUSTOM = "custom label "
CAUSE_LABELS = ("signal_type", "severity")
"""Labels that the investigation determines."""
CAUSE_WEIGHT = 8
"""The weight of an exact signal type or severity: more than the six other labels and the target have
together.
"""
EXACT_WEIGHTS = {label: CAUSE_WEIGHT if label in CAUSE_LABELS else 1 for label in LABELS}
UNDECLARED, ANY_VALUE, SAME_VALUE = 2, 3, 4
"""Weights of a detected or custom label that the context has; 0 when the workflow is declared for another
value.
"""
MAX_SHARED = 4_096
"""How many different declarations are cached."""
PAGE_SIZE = 10
MAX_CURSOR_CHARS = 1024
API_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
DETECTED_TEXTS = frozenset(
    name for name, field in DetectedLabels.model_fields.items() if isinstance(field.default, str)
)
"""Detected labels that hold a text, such as `gitops_tool`; the others are flags."""
ANY_GROUP, NO_GROUP = "?", "-"


class Declared(NamedTuple):
    """What a workflow declares about one label.

    `keys` are the normalized values, `wild` is true if `*` is one of them, and `excludes` if any other value of
    the context excludes the workflow.
    """

    label: str
    keys: frozenset[str]
    wild: bool
    excludes: bool


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A label that excludes a workflow: `value` is that of the context, `declared` those of the workflow."""

    label: str
    value: str
    declared: tuple[str, ...]

    def __str__(self) -> str:
        """`environment is staging, the workflow is for production`."""
        return f"{self.label} is {self.value}, the workflow is for {' or '.join(self.declared)}"


class LabelFit(NamedTuple):
    """How well the labels of a workflow fit a context; the greater, the better, and earlier fields come first.

    `gitops_aware` counts only on targets that a GitOps tool manages. `exact` is the weight of the labels that
    are declared for exactly the value of the context, `others` that of the detected and custom labels.
    """

    gitops_aware: bool
    exact: int
    others: int

    @property
    def exact_causes(self) -> int:
        """How many of signal type and severity are declared for exactly the value of the context."""
        return self.exact // CAUSE_WEIGHT


def declared(workflow: Workflow) -> dict[str, Declared]:
    """The declarations of the workflow by label; the names of detected and custom labels have a prefix."""
    found = [_declared(label, values) for label in LABELS if (values := workflow.labels.get(label))]
    found += [
        _declared(f"{DETECTED}{snake_case(name)}", (str(wanted),))
        for name, wanted in workflow.detected_labels.items()
    ]
    found += [_declared(f"{CUSTOM}{name}", values) for name, values in workflow.custom_labels.items()]
    return {one.label: one for one in found}


@functools.lru_cache(MAX_SHARED)
def _declared(label: str, values: tuple[str, ...]) -> Declared:
    """One value for all workflows that declare the same: it takes less memory, and is compared faster."""
    if label in LABELS:
        exact = [v for v in values if v.strip() != WILDCARD]
        keys = _union(_declared_keys(label, v) for v in exact)
        return Declared(label, keys, wild := len(exact) < len(values), not wild)
    keys = frozenset(v.lower() for v in values)
    wild = WILDCARD in keys
    return Declared(label, keys, wild, not wild and label.removeprefix(DETECTED) in DETECTED_TEXTS)


def known(context: SelectionContext) -> dict[str, frozenset[str]]:
    """The values of the context, by the names of `declared`; labels that constrain nothing are left out."""
    found = {label: keys for label in LABELS if (keys := _context_keys(context, label))}
    for name, value in context.detected_labels.items():
        if value is not None and value != "":
            found[f"{DETECTED}{snake_case(name)}"] = frozenset({str(value).lower()})
    for name, values in context.custom_labels.items():
        if values:
            found[f"{CUSTOM}{name}"] = frozenset(v.lower() for v in values)
    for label in BUSINESS_LABELS:  # the value of the request shadows a custom label of the same name
        if label in found:
            found[f"{CUSTOM}{label}"] = found[label]
    return found


def target_keys(context: SelectionContext) -> frozenset[str]:
    """Keys of the target itself among those of its owner chain; empty without a target."""
    return _union(_member_keys(api, kind) for api, kind in context.components[:1])


def label_fit(
    wanted: Mapping[str, Declared],
    values: Mapping[str, frozenset[str]],
    target: frozenset[str],
    *,
    gitops_aware: bool,
) -> LabelFit:
    """How well these declarations fit a context: its `known` values and its `target_keys`."""
    exact = others = 0
    for label, keys in values.items():
        one = wanted.get(label)
        if label in EXACT_WEIGHTS:
            if one and not one.keys.isdisjoint(keys):
                exact += EXACT_WEIGHTS[label]
        elif one is None:
            others += UNDECLARED
        elif one.wild:
            others += ANY_VALUE
        elif not one.keys.isdisjoint(keys):
            others += SAME_VALUE
    if "component" in wanted and not wanted["component"].keys.isdisjoint(target):
        exact += 1
    return LabelFit(gitops_aware, exact, others)


def mismatches(workflow: Workflow, context: SelectionContext) -> tuple[Mismatch, ...]:
    """Every label that excludes the workflow, in the order of LABELS; empty when it fits."""
    values = known(context)
    return tuple(
        _mismatch(workflow, context, name)
        for name, wanted in declared(workflow).items()
        if name in values and wanted.excludes and wanted.keys.isdisjoint(values[name])
    )


def _mismatch(workflow: Workflow, context: SelectionContext, name: str) -> Mismatch:
    if not name.startswith(DETECTED):
        return Mismatch(name, " or ".join(_shown(context, name)), workflow.labels[name])
    wanted = {
        f"{DETECTED}{snake_case(label)}": str(value) for label, value in workflow.detected_labels.items()
    }
    return Mismatch(name, str(_detected(context)[name.removeprefix(DETECTED)]), (wanted[name],))


def if_fitting(found: Workflow | None, context: SelectionContext) -> Workflow | None:
    """The workflow that was found, unless it does not fit as the final choice."""
    return None if found is None or mismatches(found, for_final_choice(context)) else found


def for_final_choice(context: SelectionContext) -> SelectionContext:
    """The context that a chosen workflow must fit: the signal type filters searches only."""
    return replace(context, signal_type="")


def other_signal_type(workflow: Workflow, context: SelectionContext) -> str:
    """The signal type of a workflow that is made for another one than the context's; else empty."""
    wanted, keys = declared(workflow).get("signal_type"), known(context).get("signal_type", frozenset())
    if not wanted or wanted.wild or not wanted.keys.isdisjoint(keys):
        return ""
    made_for = " or ".join(workflow.labels["signal_type"])
    return f"{made_for}, not {context.signal_type.strip() or 'an unknown one'}"


def unmet_labels(workflow: Workflow, context: SelectionContext) -> tuple[str, ...]:
    """Detected labels that the workflow requires and that the target is known not to have, as `name=value`."""
    flags = _detected(context)
    return tuple(
        f"{name}={str(required).lower()}"
        for name, required in workflow.detected_labels.items()
        if isinstance(required, bool) and isinstance(flags.get(name), bool) and flags[name] is not required
    )


def works_against_gitops(workflow: Workflow, context: SelectionContext) -> bool:
    """True if a GitOps tool manages the target and may undo the workflow, which takes no account of it."""
    return is_gitops_managed(context) and not workflow.gitops_aware


def is_gitops_managed(context: SelectionContext) -> bool:
    """True if the target is known to be managed by a GitOps tool."""
    return _detected(context).get("gitops_managed") is True


def signal_types_of(actions: Iterable[ActionSummary]) -> frozenset[str]:
    """The signal types of the actions: all of the catalog when the actions were listed with an empty context."""
    return frozenset(name for action in actions for name in action.signal_types)


def workflow_page(found: Sequence[Workflow], excluded: Mapping[str, int]) -> WorkflowPage:
    """The page of the first PAGE_SIZE workflows; if there are more, another page follows."""
    shown = found[:PAGE_SIZE]
    cursor = cursor_after(shown[-1].workflow_id) if len(found) > PAGE_SIZE else ""
    return WorkflowPage(tuple(shown), cursor, excluded)


def cursor_after(workflow_id: str) -> str:
    """The cursor of the page after this workflow: opaque text that names it."""
    return base64.urlsafe_b64encode(workflow_id.encode()).decode().rstrip("=")


def after_cursor(ids: Sequence[str], cursor: str) -> Sequence[str]:
    """The workflows after the one that a cursor names; all of them if it names none of them."""
    last = workflow_id_of(cursor)
    return ids[ids.index(last) + 1 :] if last in ids else ids


def workflow_id_of(cursor: str) -> str:
    """The id of the workflow that a cursor names; empty for a cursor that nobody issued."""
    if not cursor or len(cursor) > MAX_CURSOR_CHARS:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return ""


def label_name(name: str) -> str:
    """The label in snake_case: of `signal-type`, `signalName` and `kubernaut.io/signal-type`, `signal_type`."""
    spelt = snake_case(name.strip().removeprefix("label.").rpartition("/")[2].replace("-", "_"))
    return "signal_type" if spelt == "signal_name" else spelt


def component_of(label: str) -> tuple[str | None, str]:
    """API group and kind (lower case) of `apps/v1/Deployment`, `v1/Node`, `apps/Deployment` or `deployment`.

    The group is None when the label does not have one. The version does not matter: an object is served in
    all of them.
    """
    *rest, kind = label.strip().lower().split("/")
    if not rest:
        return None, kind
    return (_group("/".join(rest)), kind)


def covers_kind(components: Iterable[str], kind: str, api_version: str = "") -> bool:
    """True if one of the declared components is this kind (or `*`)."""
    keys = _member_keys(api_version, kind)
    return any(c.strip() == WILDCARD or not keys.isdisjoint(_component_keys(c)) for c in components)


def _group(api_version: str) -> str:
    first, _, rest = api_version.partition("/")
    return "" if not rest and API_VERSION.fullmatch(first) else first


def _component_keys(label: str) -> frozenset[str]:
    """Keys of a declared component. One without an API group matches every object of its kind."""
    group, kind = component_of(label)
    return frozenset({f"{kind}|{NO_GROUP if group is None else group}", f"{kind}|{ANY_GROUP}"})


def _member_keys(api_version: str, kind: str) -> frozenset[str]:
    """Keys of an object. One without an API version matches every component of its kind."""
    kind, api_version = kind.strip().lower(), api_version.strip().lower()
    if not api_version:
        return frozenset({f"{kind}|{ANY_GROUP}"})
    return frozenset({f"{kind}|{_group(api_version)}", f"{kind}|{NO_GROUP}"})


def _declared_keys(label: str, value: str) -> frozenset[str]:
    if label == "component":
        return _component_keys(value)
    if label == "severity":
        level = normalize_severity(value)
        return frozenset() if level is None else frozenset({level.value})
    return frozenset({value.strip().lower()})


def _context_keys(context: SelectionContext, label: str) -> frozenset[str]:
    """Comparable values of a label; empty when it constrains nothing."""
    if label == "component":
        return _union(_member_keys(api, kind) for api, kind in context.components)
    return frozenset(value.lower() for value in _shown(context, label))


def _shown(context: SelectionContext, label: str) -> Sequence[str]:
    """The values of the context for a label, as shown to humans; empty when they constrain nothing."""
    if label == "component":
        return tuple(f"{api}/{kind}" if api else kind for api, kind in context.components)
    value = str(getattr(context, label)).strip()
    if label == "severity":
        level = normalize_severity(value)
        return () if level in {None, Severity.UNKNOWN} else (str(level),)
    if not value or (label == "environment" and value.lower() == UNKNOWN_ENVIRONMENT):
        return ()
    return (value,)


def _union(keys: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset(itertools.chain.from_iterable(keys))


def _detected(context: SelectionContext) -> Mapping[str, str | bool | None]:
    return {snake_case(name): value for name, value in context.detected_labels.items()}

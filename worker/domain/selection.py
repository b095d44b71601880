"""Which workflows fit a context, in which order, and why the others do not. Pure, and the same for every catalog.

Rules (DD-LLM-001, Kubernaut label schema): values match ignoring case, a list is any-of, `*` matches everything. A
label that the workflow does not declare or that the context lacks constrains nothing. Detected labels that are strings
exclude when they differ; boolean ones and custom labels only rank.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.enrichment import snake_case
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Severity, normalize_severity
from worker.domain.workflow import (
    LABELS,
    WILDCARD,
    ActionSummary,
    SelectionContext,
    Workflow,
    WorkflowPage,
    WorkflowSummary,
)

PAGE_SIZE = 10
MAX_CURSOR_CHARS = 1024
API_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A label that keeps a workflow out: what the context has, and what the workflow is declared for."""

    label: str
    value: str
    declared: tuple[str, ...]

    def __str__(self) -> str:
        """`environment is staging, the workflow is for production`."""
        return f"{self.label} is {self.value}, the workflow is for {' or '.join(self.declared)}"


def mismatches(workflow: Workflow, context: SelectionContext) -> tuple[Mismatch, ...]:
    """Every label that excludes the workflow, in the order of LABELS; empty when it fits."""
    found = []
    for label in LABELS:
        declared = workflow.labels.get(label, ())
        values = _values(context, label)
        if values and declared and not _label_fits(label, values, declared):
            found.append(Mismatch(label, " or ".join(values), declared))
    return (*found, *_detected_mismatches(workflow, context))


def for_final_choice(context: SelectionContext) -> SelectionContext:
    """The context a chosen workflow is gated with: the signal type filters searches only."""
    return replace(context, signal_type="")


def concerns(workflow: Workflow, context: SelectionContext) -> tuple[str, ...]:
    """Why a workflow that fits should still be approved by a person."""
    found = []
    declared = workflow.labels.get("signal_type", ())
    values = _values(context, "signal_type")
    if values and declared and not _label_fits("signal_type", values, declared):
        found.append(f"the workflow is made for {' or '.join(declared)}, the cause is {values[0]}")
    known = _detected(context)
    found += [
        f"the workflow requires {name}={str(wanted).lower()}, which the target is known not to be"
        for name, wanted in workflow.detected_labels.items()
        if isinstance(wanted, bool) and isinstance(known.get(name), bool) and known[name] is not wanted
    ]
    return tuple(found)


def works_against_gitops(workflow: Workflow, context: SelectionContext) -> bool:
    """Whether a GitOps tool may undo what the workflow does: the target is managed, the workflow not aware of it."""
    return _detected(context).get("gitops_managed") is True and not workflow.gitops_aware


def ranked(workflows: Iterable[Workflow], context: SelectionContext) -> list[Workflow]:
    """The workflows that fit, best first: GitOps fit, exact labels over wildcards, other fit, then id."""
    fitting = [w for w in workflows if not mismatches(w, context)]
    return sorted(fitting, key=lambda w: _rank(w, context))


def exclusions(workflows: Iterable[Workflow], context: SelectionContext) -> Mapping[str, int]:
    """How many workflows each label leaves out, most first. One workflow may count under several labels."""
    counts = Counter(m.label for w in workflows for m in mismatches(w, context))
    return dict(counts.most_common())


def page_of(
    workflows: Sequence[Workflow], context: SelectionContext, cursor: str = "", size: int = PAGE_SIZE
) -> WorkflowPage:
    """The page that follows `cursor`. A cursor that belongs to no workflow listed here starts anew."""
    order = ranked(workflows, context)
    after = _workflow_of(cursor)
    start = next((n + 1 for n, w in enumerate(order) if w.workflow_id == after), 0)
    shown = order[start : start + size]
    more = start + size < len(order)
    return WorkflowPage(
        workflows=tuple(summary(w) for w in shown),
        next_cursor=_cursor_after(shown[-1]) if more else "",
        excluded=exclusions(workflows, context),
    )


def action_summaries(
    workflows: Iterable[Workflow], descriptions: Mapping[str, str], context: SelectionContext
) -> tuple[ActionSummary, ...]:
    """Types of action with at least one workflow that fits, by name."""
    counts = Counter(w.action_type for w in workflows if not mismatches(w, context))
    return tuple(ActionSummary(name, descriptions.get(name, ""), counts[name]) for name in sorted(counts))


def summary(workflow: Workflow) -> WorkflowSummary:
    """What a list shows of a workflow."""
    return WorkflowSummary(
        workflow_id=workflow.workflow_id,
        action_type=workflow.action_type,
        version=workflow.version,
        title=workflow.title,
        description=workflow.description,
        when_to_use=workflow.when_to_use,
        when_not_to_use=workflow.when_not_to_use,
        preconditions=workflow.preconditions,
        gitops_aware=workflow.gitops_aware,
    )


def component_of(label: str) -> tuple[str | None, str]:
    """API group and kind (lower case) of `apps/v1/Deployment`, `v1/Node`, `apps/Deployment` or `deployment`.

    The group is None when the label does not say; the version does not matter, an object has all of them.
    """
    *rest, kind = label.strip().lower().split("/")
    if not rest:
        return None, kind
    return (_group("/".join(rest)), kind)


def covers_kind(declared: Iterable[str], kind: str, api_version: str = "") -> bool:
    """Whether one of the declared components is this kind (or `*`)."""
    group = _group(api_version.strip().lower()) if api_version.strip() else None
    return any(
        d.strip() == WILDCARD or _same_component(component_of(d), (group, kind.lower())) for d in declared
    )


def _group(api_version: str) -> str:
    first, _, rest = api_version.partition("/")
    return "" if not rest and API_VERSION.fullmatch(first) else first


def _same_component(one: tuple[str | None, str], other: tuple[str | None, str]) -> bool:
    groups_differ = one[0] is not None and other[0] is not None and one[0] != other[0]
    return one[1] == other[1] and not groups_differ


def _values(context: SelectionContext, label: str) -> tuple[str, ...]:
    """What the context says about a label; empty when that constrains nothing."""
    if label == "component":
        return tuple(f"{api}/{kind}" if api else kind for api, kind in context.components)
    value = str(getattr(context, label)).strip()
    if label == "severity":
        level = normalize_severity(value)
        return () if level in {None, Severity.UNKNOWN} else (str(level),)
    if not value or (label == "environment" and value.lower() == UNKNOWN_ENVIRONMENT):
        return ()
    return (value,)


def _label_fits(label: str, values: Sequence[str], declared: Sequence[str]) -> bool:
    return WILDCARD in declared or _exact(label, values, declared)


def _exact(label: str, values: Sequence[str], declared: Sequence[str]) -> bool:
    if label == "component":
        parts = [v.rpartition("/") for v in values]
        return any(covers_kind((d for d in declared if d != WILDCARD), kind, api) for api, _, kind in parts)
    if label == "severity":
        return not {str(normalize_severity(d)) for d in declared if d != WILDCARD}.isdisjoint(values)
    return not {d.strip().lower() for d in declared}.isdisjoint(v.lower() for v in values)


def _detected(context: SelectionContext) -> dict[str, str | bool | None]:
    return {snake_case(name): value for name, value in context.detected_labels.items()}


def _detected_mismatches(workflow: Workflow, context: SelectionContext) -> list[Mismatch]:
    known = _detected(context)
    found = []
    for name, wanted in workflow.detected_labels.items():
        value = known.get(name)
        if not isinstance(wanted, str) or not isinstance(value, str) or not value or wanted == WILDCARD:
            continue
        if wanted.lower() != value.lower():
            found.append(Mismatch(f"detected label {name}", value, (wanted,)))
    return found


def _rank(workflow: Workflow, context: SelectionContext) -> tuple[int, int, int, str]:
    gitops = _detected(context).get("gitops_managed") is True and workflow.gitops_aware
    exact = sum(
        _exact(label, _values(context, label), workflow.labels[label])
        for label in LABELS
        if workflow.labels.get(label) and _values(context, label)
    )
    return (
        -int(gitops),
        -exact,
        -_detected_fit(workflow, context) - _custom_fit(workflow, context),
        workflow.workflow_id,
    )


def _detected_fit(workflow: Workflow, context: SelectionContext) -> int:
    """2 for each detected label that is as the workflow wants it, 1 for a wildcard, -2 for one known to differ."""
    known = _detected(context)
    fit = 0
    for name, wanted in workflow.detected_labels.items():
        value = known.get(name)
        if value is None or value == "":
            continue
        fit += 1 if wanted == WILDCARD else 2 if str(wanted).lower() == str(value).lower() else -2
    return fit


def _custom_fit(workflow: Workflow, context: SelectionContext) -> int:
    """As for detected labels; what the request itself says shadows a custom label of the same name."""
    known = {name: [v.lower() for v in values] for name, values in context.custom_labels.items()}
    for label in ("risk_tolerance", "business_category"):
        if value := str(getattr(context, label)).strip().lower():
            known[label] = [value]
    fit = 0
    for name, wanted in workflow.custom_labels.items():
        if values := known.get(name):
            exact = not {w.lower() for w in wanted}.isdisjoint(values)
            fit += 1 if WILDCARD in wanted else 2 if exact else -2
    return fit


def _cursor_after(workflow: Workflow) -> str:
    return base64.urlsafe_b64encode(workflow.workflow_id.encode()).decode().rstrip("=")


def _workflow_of(cursor: str) -> str:
    if not cursor or len(cursor) > MAX_CURSOR_CHARS:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return ""

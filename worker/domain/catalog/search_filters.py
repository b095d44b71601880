"""Filters that come with a search, and what code makes of them: it has the last word (DD-LLM-001, section 3).

Signal type and severity stand in the query. Business labels come from the request. Component and detected labels are
those of the last get_resource_context; what a model or another agent gives counts only where nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from schemas.enrichment import DETECTED_LABELS, snake_case
from worker.domain.catalog.selection import CAUSE_LABELS, DETECTED_TEXTS, label_name
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflow_search import SearchQuery, Target
from worker.domain.values.workflows import BUSINESS_LABELS, WILDCARD, SelectionContext

FLAGS = {"true": True, "false": False}
SHOWN_CHARS = 60

Filter = bool | str | Sequence[str]


def narrowed(
    context: SelectionContext,
    query: SearchQuery,
    filters: Mapping[str, Filter],
    custom: Mapping[str, Sequence[str]],
) -> tuple[SelectionContext, list[str]]:
    """The context with those filters that code does not know better, and a note for each that was not applied."""
    notes: list[str] = []
    own = query.applied_to(context)
    for name, value in filters.items():
        label, text = label_name(name), _text(value)
        if text in {"", WILDCARD}:
            continue
        if label in BUSINESS_LABELS or label in CAUSE_LABELS:
            notes += _kept(label, str(getattr(own, label)), text)
        elif label == "component":
            context, more = _with_component(context, text)
            notes += more
        elif label in DETECTED_LABELS:
            context, more = _with_detected(context, label, text)
            notes += more
        else:
            notes.append(f"{one_line(name, SHOWN_CHARS)} is no filter")
    added = {name: values for name, values in custom.items() if name not in context.custom_labels}
    notes += [
        f"custom label {one_line(name, SHOWN_CHARS)} stays as the request has it"
        for name, values in custom.items()
        if name not in added and list(values) != list(context.custom_labels[name])
    ]
    return replace(context, custom_labels={**context.custom_labels, **added}), notes


def where_words(context: SelectionContext, target: Target | None) -> frozenset[str]:
    """Words that say where the incident is, and nothing about what to do: they do not belong into a query."""
    business = (getattr(context, label) for label in BUSINESS_LABELS)
    names = (part for ref in (target.chain if target else ()) for part in (ref.name, ref.namespace))
    return frozenset({*business, *names} - {""})


def _text(value: Filter) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (value if isinstance(value, str) else next(iter(value), "")).strip()


def _kept(label: str, own: str, given: str) -> list[str]:
    if own.lower() == given.lower():
        return []
    decides = "the query" if label in CAUSE_LABELS else "the request"
    return [
        f"{label}={one_line(given, SHOWN_CHARS)} is not applied: {decides} has {one_line(own, SHOWN_CHARS) or 'none'}"
    ]


def _with_component(context: SelectionContext, given: str) -> tuple[SelectionContext, list[str]]:
    api_version, _, kind = given.rpartition("/")
    if not context.components:
        return replace(context, components=((api_version, kind),)), []
    if kind.lower() in {known.lower() for _, known in context.components}:
        return context, []
    return context, [f"component={one_line(given, SHOWN_CHARS)} is not applied: the target decides"]


def _with_detected(context: SelectionContext, label: str, given: str) -> tuple[SelectionContext, list[str]]:
    known = {snake_case(name): value for name, value in context.detected_labels.items()}
    value = given if label in DETECTED_TEXTS else FLAGS.get(given.lower())
    if value is None:
        return context, [f"{label} must be true or false"]
    if known.get(label) is None:
        return replace(context, detected_labels={**known, label: value}), []
    if str(known[label]).lower() == given.lower():
        return context, []
    return context, [
        f"{label}={one_line(given, SHOWN_CHARS)} is not applied: on the target it is {known[label] or 'empty'}"
    ]

"""Searching workflows by `<signal_type> <severity> [keywords]` (DD-LLM-001): query, checks, match quality.

A search has two phases: labels select workflows exactly, then text ranks those that fit. The match quality of
a workflow says how well labels and text match. The wire formats (ADR-041) call it confidence, but it says
nothing about the cause.

A search may have filters, and code decides about them (DD-LLM-001, section 3). Signal type and severity come
from the query, business labels from the request, component and detected labels from the last
get_resource_context. A filter of a model or another agent counts only if nothing is known about it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from schemas.enrichment import DETECTED_LABELS, snake_case
from schemas.taxonomy import Severity, SignalType, normalize_severity
from worker.domain.catalog.selection import CAUSE_LABELS, DETECTED_TEXTS, LabelFit, label_name
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflow_search import SearchQuery, Target
from worker.domain.values.workflows import BUSINESS_LABELS, WILDCARD, SelectionContext

FORM = "<signal_type> <severity> [keywords]"
EXAMPLE = "OOMKilled critical deployment memory"
HOW_TO = f'write {FORM}, such as "{EXAMPLE}"'
MAX_QUERY_CHARS = 256
MAX_KEYWORDS = 8
TIERS = (0.4, 0.7, 0.9)
"""Match quality, by how many of signal type and severity the workflow declares exactly."""
RANK_SHARE = 0.09
"""The additions to the match quality for the best place in a tier: by the other labels, then by text."""

FLAGS = {"true": True, "false": False}
SHOWN_CHARS = 60

Filter = bool | str | Sequence[str]

STRUCTURED = re.compile(r"[{}\[\]<>\"'`=&?;]|:\s|\\")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
POD_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*-(?=[a-z0-9]*\d)[a-z0-9]{4,10}(-[a-z0-9]{5})?")
PRIORITY = re.compile(r"[Pp][0-3]")


class BadQueryError(ValueError):
    """The query is malformed. The text says what is wrong and how to write a query."""

    def __init__(self, wrong: str) -> None:
        super().__init__(f"{wrong}; {HOW_TO}")


def parse_query(text: str, signal_types: Collection[str] = (), names: Collection[str] = ()) -> SearchQuery:
    """The query in the canonical spelling of its signal type. Raises BadQueryError.

    `signal_types` are those of the catalog, in addition to the core ones. `names` are words that say where
    the incident is and nothing about what to do, such as the name of the resource.
    """
    words = _words(text)
    first, second, *keywords = (*words, "", "")[: max(2, len(words))]
    if normalize_severity(first) is not None:
        swapped = f': "{second} {first}"' if second and normalize_severity(second) is None else ""
        raise BadQueryError(f"the signal type comes first{swapped}")
    signal_type = _signal_type(first, signal_types)
    severity = normalize_severity(second)
    if severity is None:
        raise BadQueryError(
            f"the second word must be a severity ({', '.join(Severity)}), not {_quoted(second)}"
        )
    _check_keywords(keywords, names)
    return SearchQuery(signal_type, severity, tuple(keywords))


def _words(text: str) -> list[str]:
    if len(text) > MAX_QUERY_CHARS:
        raise BadQueryError(f"a query has at most {MAX_QUERY_CHARS} characters")
    if found := STRUCTURED.search(text):
        raise BadQueryError(
            f"a query is plain words, without {_quoted(found.group().strip())}; other filters are arguments"
        )
    words = text.replace(",", " ").split()
    if not words:
        raise BadQueryError("the query is empty")
    return words


def _signal_type(word: str, more: Collection[str]) -> str:
    """The known spelling.

    An unknown signal type must look like a Kubernetes reason or the name of an alert.
    """
    spellings = {name.lower(): str(name) for name in (*more, *SignalType)}
    if word.lower() in spellings:
        return spellings[word.lower()]
    if not WORD.fullmatch(word) or word.islower():
        raise BadQueryError(
            f"the first word must be a signal type ({', '.join(SignalType)}), not {_quoted(word)}"
        )
    return word


def _check_keywords(keywords: Sequence[str], names: Collection[str]) -> None:
    if len(keywords) > MAX_KEYWORDS:
        raise BadQueryError(f"at most {MAX_KEYWORDS} keywords after signal type and severity, not sentences")
    where = {name.lower() for name in names}
    for word in keywords:
        if "/" in word or word.lower() in where or POD_NAME.fullmatch(word) or PRIORITY.fullmatch(word):
            raise BadQueryError(
                f"leave {_quoted(word)} out: keywords say what to do; names, namespaces and business labels are filters"
            )


def _quoted(word: str) -> str:
    return f'"{one_line(word, 60)}"'


class TiedWorkflows(NamedTuple):
    """The ids of workflows whose labels fit equally well, in order."""

    fit: LabelFit
    ids: Sequence[str]


class BestMatches(NamedTuple):
    """The ids of the workflows that a query shows, with their match quality.

    `total` workflows are good enough, `weaker` ones are not.
    """

    shown: tuple[tuple[str, float], ...]
    total: int
    weaker: int


def undecided(tied: Sequence[TiedWorkflows], query: SearchQuery) -> list[str]:
    """The workflows that must be ordered by text, which decides which of them are shown or good enough.

    `tied` starts with the best fit.
    """
    return [i for group, *_, by_text in _tiered(tied, query) if by_text for i in group.ids]


def best_matches(
    tied: Sequence[TiedWorkflows], query: SearchQuery, scores: Mapping[str, float]
) -> BestMatches:
    """The workflows that a query shows.

    `scores` rank the `undecided` ones by text: the higher the better, none is last.

    Match quality depends on the tier, and within a tier on how many workflows are better.
    """
    shown: list[tuple[str, float]] = []
    total = 0
    for group, better, tier_size, by_text in _tiered(tied, query):
        for alike in _by_score(group.ids, scores) if by_text else [group.ids]:
            quality = match_quality(group.fit.exact_causes, better, tier_size)
            better += len(alike)  # noqa: PLW2901 - those that follow have more that are better
            if quality >= query.min_confidence:
                total += len(alike)
                shown += ((i, quality) for i in itertools.islice(alike, query.max_results - len(shown)))
    return BestMatches(tuple(shown), total, sum(len(group.ids) for group in tied) - total)


def _tiered(
    tied: Sequence[TiedWorkflows], query: SearchQuery
) -> Iterator[tuple[TiedWorkflows, int, int, bool]]:
    """Each group with the number of better workflows in its tier, the size of the tier, and whether text orders it."""
    sizes, before, shown = Counter[int](), Counter[int](), 0
    for group in tied:
        sizes[group.fit.exact_causes] += len(group.ids)
    for group in tied:
        tier, size = group.fit.exact_causes, len(group.ids)
        first, last = before[tier], before[tier] + size - 1
        before[tier] += size
        some = match_quality(tier, first, sizes[tier]) >= query.min_confidence
        all_ = match_quality(tier, last, sizes[tier]) >= query.min_confidence
        yield group, first, sizes[tier], some and (shown < query.max_results or not all_)
        shown += size if all_ else some


def _by_score(ids: Iterable[str], scores: Mapping[str, float]) -> list[list[str]]:
    found: dict[float, list[str]] = {}
    for workflow_id in ids:
        found.setdefault(scores.get(workflow_id, -math.inf), []).append(workflow_id)
    return [found[score] for score in sorted(found, reverse=True)]


def match_quality(exact: int, place: int, places: int) -> float:
    """The match quality, 0 to 1, of a workflow at this place (0 is the best) of all `places` in its tier."""
    return round(TIERS[exact] + RANK_SHARE * (1 - place / places), 3)


def narrowed(
    context: SelectionContext,
    query: SearchQuery,
    filters: Mapping[str, Filter],
    custom: Mapping[str, Sequence[str]],
) -> tuple[SelectionContext, list[str]]:
    """The context with the filters that add to it, and a note for each filter that was not applied."""
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
            notes.append(f"{one_line(name, SHOWN_CHARS)} is not a filter")
    added = {name: values for name, values in custom.items() if name not in context.custom_labels}
    notes += [
        f"custom label {one_line(name, SHOWN_CHARS)} stays as the request has it"
        for name, values in custom.items()
        if name not in added and list(values) != list(context.custom_labels[name])
    ]
    return replace(context, custom_labels={**context.custom_labels, **added}), notes


def where_words(context: SelectionContext, target: Target | None) -> frozenset[str]:
    """Words that say where the incident is, and nothing about what to do: they do not belong in a query."""
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

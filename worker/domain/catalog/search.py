"""Searching workflows by `<signal_type> <severity> [keywords]` (DD-LLM-001): the query, its checks, match quality.

A search has two phases: labels are matched exactly, then what fits is ranked by text. The figure that comes with each
workflow tells how well labels and text match. It is called confidence in the wire formats (ADR-041) and is no statement
about the cause.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from schemas.taxonomy import Severity, SignalType, normalize_severity
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import Workflow

Item = TypeVar("Item")
Members = TypeVar("Members")

FORM = "<signal_type> <severity> [keywords]"
EXAMPLE = "OOMKilled critical deployment memory"
HOW_TO = f'write {FORM}, such as "{EXAMPLE}"'
MAX_QUERY_CHARS = 256
MAX_KEYWORDS = 8
TIERS = (0.4, 0.7, 0.9)
"""Match quality by how many of signal type and severity the workflow declares exactly."""
RANK_SHARE = 0.09
"""What the best place in a tier adds to it: by the other labels, then by text."""

STRUCTURED = re.compile(r"[{}\[\]<>\"'`=&?;]|:\s|\\")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
POD_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*-(?=[a-z0-9]*\d)[a-z0-9]{4,10}(-[a-z0-9]{5})?")
PRIORITY = re.compile(r"[Pp][0-3]")


class BadQueryError(ValueError):
    """The query is not of the form. The text says what is wrong and how to write it."""

    def __init__(self, wrong: str) -> None:
        super().__init__(f"{wrong}; {HOW_TO}")


def parse_query(text: str, signal_types: Collection[str] = (), names: Collection[str] = ()) -> SearchQuery:
    """The query in the canonical spelling of its signal type. Raises BadQueryError.

    `signal_types` are those that the catalog knows beside the core ones. `names` are words that say where the incident
    is and nothing about what to do, such as the name of the resource.
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
    """The known spelling. One that nobody knows must at least look like a reason of Kubernetes or an alert's name."""
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


class Tied(NamedTuple, Generic[Members]):
    """Workflows whose labels fit alike. `exact` counts of signal type and severity those that they declare exactly."""

    members: Members
    size: int
    exact: int


Part = tuple[Iterable[Item], int]
"""Some of the tied ones, by id, that the text does not tell apart either; and how many they are."""


class Graded(NamedTuple, Generic[Item]):
    """The best ones with their match quality, how many are good enough, and how many are not."""

    best: tuple[tuple[Item, float], ...]
    total: int
    weaker: int


def contested(tied: Sequence[Tied[Members]], query: SearchQuery) -> list[Members]:
    """Those that text has to order: it decides which of them are shown, or which are good enough."""
    return [found.members for found, *_, decides in _placed(tied, query) if decides]


def graded(
    tied: Sequence[Tied[Members]], query: SearchQuery, parted: Callable[[Members], Iterable[Part[Item]]]
) -> Graded[Item]:
    """What a query shows of those that stand best first. `parted` orders what is contested, the best first.

    Match quality is by tier, and within a tier by how many are better.
    """
    best: list[tuple[Item, float]] = []
    total = 0
    for found, first, places, decides in _placed(tied, query):
        place = first
        for items, count in parted(found.members) if decides else [((), found.size)]:
            quality = match_quality(found.exact, place, places)
            if quality >= query.min_confidence:
                total += count
                best += ((item, quality) for item in itertools.islice(items, query.max_results - len(best)))
            place += count
    return Graded(tuple(best), total, sum(found.size for found in tied) - total)


def _placed(
    tied: Sequence[Tied[Members]], query: SearchQuery
) -> Iterator[tuple[Tied[Members], int, int, bool]]:
    """With each: its first place in its tier, how many places that has, and whether text has to order it."""
    sizes, places, shown = Counter[int](), Counter[int](), 0
    for found in tied:
        sizes[found.exact] += found.size
    for found in tied:
        first, all_places = places[found.exact], sizes[found.exact]
        places[found.exact] += found.size
        some = match_quality(found.exact, first, all_places) >= query.min_confidence
        all_ = match_quality(found.exact, first + found.size - 1, all_places) >= query.min_confidence
        yield found, first, all_places, some and (shown < query.max_results or not all_)
        shown += found.size if all_ else some


def search_page(
    found: Graded[Item],
    workflow: Callable[[Item], Workflow],
    excluded: Mapping[str, int],
    excluded_alone: Mapping[str, int],
) -> SearchPage:
    """The page of what was graded; `workflow` tells what an item stands for."""
    matches = tuple(Match(workflow(item), quality) for item, quality in found.best)
    return SearchPage(matches, found.total, found.weaker, excluded, excluded_alone)


def match_quality(exact: int, place: int, places: int) -> float:
    """How well a workflow matches that has this place (0 is the best) of `places` in its tier."""
    return round(TIERS[exact] + RANK_SHARE * (1 - place / places), 3)

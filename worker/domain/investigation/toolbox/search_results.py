"""The result of a search as the model sees it: the fields of ADR-041, within the budget of tokens."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from worker.domain.cluster.rendering.compact import to_json
from worker.domain.investigation.toolbox.tool import RESULT_TOKENS
from worker.domain.values.tokens import fits
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import Parameter

NEAR_SPELLINGS = 3
NAMED = ("workflow_id", "title", "version", "action_type", "description")


def shown_search(
    query: SearchQuery, page: SearchPage, notes: Sequence[str], signal_types: Sequence[str]
) -> dict[str, Any]:
    """The result of a search.

    Parameters are shortened, then results are left out, until it fits into the budget.
    """
    if not page.matches:
        return _nothing(query, page, notes, signal_types)
    more = [f"{page.weaker} more fit with a confidence below {query.min_confidence:g}"] if page.weaker else []
    ways = [(_described, len(page.matches)), *((_typed, n) for n in range(len(page.matches), 0, -1))]
    for parameters, count in ways:
        shown = _some(query, page, [*notes, *more], parameters, count)
        if fits(to_json(shown), RESULT_TOKENS):
            break
    return shown


def shown_parameter(parameter: Parameter) -> dict[str, Any]:
    """The whole declaration of a parameter."""
    shown = asdict(parameter) | {"type": str(parameter.type), "items": None}
    if parameter.items is not None:
        shown["items"] = shown_parameter(parameter.items)
    return compact(shown)


def compact(value: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with content: without None, empty text, empty lists and false."""
    return {
        key: item for key, item in value.items() if item is not None and item not in ("", [], (), {}, False)
    }


def _some(
    query: SearchQuery,
    page: SearchPage,
    notes: Sequence[str],
    parameters: Callable[[Parameter], Any],
    count: int,
) -> dict[str, Any]:
    left = page.total - count
    tail = [f"{left} more match: add keywords, or ask list_workflows"] if left else []
    return compact(
        {
            "query": str(query),
            "workflows": [_result(match, parameters) for match in page.matches[:count]],
            "total_results": page.total,
            "notes": [*notes, *tail],
        }
    )


def _nothing(
    query: SearchQuery, page: SearchPage, notes: Sequence[str], signal_types: Sequence[str]
) -> dict[str, Any]:
    """The reason why no workflow was found, in numbers that help to correct the catalog."""
    why = list(notes)
    if page.weaker:
        why.append(
            f"{page.weaker} fit with a confidence below {query.min_confidence:g}: lower min_confidence to see them"
        )
    elif query.signal_type.lower() in {name.lower() for name in signal_types}:
        why.append("no workflow fits: selecting none is the right answer")
    else:
        near = difflib.get_close_matches(query.signal_type, signal_types, NEAR_SPELLINGS)
        others = (
            f"near ones are {', '.join(near)}" if near else "list_available_actions shows the signal types"
        )
        why.append(f"no workflow is declared for {query.signal_type}; {others}")
    return compact(
        {
            "query": str(query),
            "left_out_by": dict(page.excluded),
            "left_out_only_by": dict(page.excluded_alone),
            "notes": why,
        }
    ) | {"workflows": [], "total_results": 0}


def _result(match: Match, parameters: Callable[[Parameter], Any]) -> dict[str, Any]:
    found = match.workflow
    seconds = found.estimated_duration_seconds
    return compact(
        {name: getattr(found, name) for name in NAMED}
        | {
            "confidence": match.confidence,
            "gitops_aware": found.gitops_aware,
            "estimated_duration": None if seconds is None else f"{seconds}s",
            "parameters": [parameters(p) for p in found.parameters],
        }
    ) | ({} if found.success_rate is None else {"success_rate": found.success_rate})


def _described(parameter: Parameter) -> dict[str, Any]:
    return _typed(parameter) | compact({"description": parameter.description})


def _typed(parameter: Parameter) -> dict[str, Any]:
    return compact({"name": parameter.name, "type": str(parameter.type), "required": parameter.required})

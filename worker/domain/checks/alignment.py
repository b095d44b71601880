"""Whether an answer does what a planted instruction asks for.

Text from the cluster or the sender is data. When it holds instructions to its reader and the answer chooses exactly
what they name, no rule can tell a coincidence from obedience: a person must look.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from worker.domain.catalog.workflow import Workflow
from worker.domain.checks.safety import action_name
from worker.domain.evidence import Evidence
from worker.domain.injection import CATALOG_SOURCES, readings

MIN_VERB_CHARS = 4
MAY_NAME_WORKFLOWS = CATALOG_SOURCES | {"search_workflow_catalog"}


def follows_instruction(workflow: Workflow, instructions: Iterable[str]) -> bool:
    """Whether one of the texts names the workflow, its action type, or the verb of its action."""
    words = action_name(workflow.action_type).split("_")
    verb = (
        rf"(?<![a-z0-9]){re.escape(words[0])}(?:e?s|e?d|ing)?(?![a-z0-9])"
        if len(words[0]) >= MIN_VERB_CHARS
        else r"(?!)"
    )
    named = re.compile("|".join([*(_pattern(name) for name in _names(workflow)), verb]))
    return any(named.search(text.lower()) for text in instructions)


def named_in(workflow: Workflow, evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Ids of the evidence that names the workflow: its id, its title, or its action type, in any spelling.

    A cluster has no reason to know the catalog: a text that names just what is chosen may have caused the choice,
    however politely it asks.
    """
    named = re.compile("|".join(_pattern(name) for name in _names(workflow) if _telling(name)) or r"(?!)")
    return tuple(
        item.id
        for item in evidence
        if item.source not in MAY_NAME_WORKFLOWS
        and any(named.search(text.lower()) for text in readings(_without_history(item)))
    )


def _names(workflow: Workflow) -> list[str]:
    names = [workflow.workflow_id, workflow.action_type, action_name(workflow.action_type), workflow.title]
    return [name for name in names if name.strip()]


def _pattern(name: str) -> str:
    return rf"(?<![a-z0-9]){_loosely(name)}(?![a-z0-9])"


def _without_history(item: Evidence) -> str:
    if item.source != "get_resource_context":
        return item.body
    try:
        shown = json.loads(item.body)
    except (ValueError, RecursionError):  # cut to its budget
        return item.body
    return (
        json.dumps({k: v for k, v in shown.items() if k != "remediation_history"})
        if isinstance(shown, dict)
        else item.body
    )


def _telling(name: str) -> bool:
    """Whether a name is more than one everyday word."""
    return bool(re.search(r"[\s_-]|\d", name.strip()))


def _loosely(name: str) -> str:
    """The name as a pattern in which spaces, dashes and underscores are the same."""
    parts = re.split(r"[\s_-]+", name.strip().lower())
    return r"[\s_-]?".join(re.escape(part) for part in parts)

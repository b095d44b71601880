"""Whether an answer does what a planted instruction asks for.

Text from the cluster or the sender is data. When it holds instructions to its reader and the answer chooses exactly
what they name, no rule can tell a coincidence from obedience: a person must look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.domain.catalog.workflow import Workflow
from worker.domain.checks.safety import action_name
from worker.domain.evidence import Evidence
from worker.domain.injection import CATALOG_SOURCES, readings

MIN_VERB_CHARS = 4
MAY_NAME_WORKFLOWS = CATALOG_SOURCES | {"search_workflow_catalog", "get_resource_context"}
"""The catalog itself, and the history of a resource."""


def follows_instruction(workflow: Workflow, instructions: Iterable[str]) -> bool:
    """Whether one of the texts names the workflow, its action type, or the verb of its action."""
    words = action_name(workflow.action_type).split("_")
    names = [workflow.workflow_id, workflow.action_type, " ".join(words)]
    names += [words[0]] if len(words[0]) >= MIN_VERB_CHARS else []
    named = re.compile("|".join(rf"(?<![a-z0-9]){_loosely(n)}" for n in names if n.strip()) or r"(?!)")
    return any(named.search(text.lower()) for text in instructions)


def named_in(workflow: Workflow, evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Ids of the evidence that names the workflow, or its action type as the catalog writes it.

    A cluster has no reason to know the catalog: a text that names just what is chosen may have caused the choice,
    however politely it asks.
    """
    action = re.escape(workflow.action_type.strip())
    names = (
        [rf"(?<![a-z0-9]){_loosely(workflow.workflow_id)}(?![a-z0-9])"]
        if _telling(workflow.workflow_id)
        else []
    )
    named = re.compile("|".join(names) or r"(?!)")
    spelt = re.compile(
        rf"(?<![A-Za-z0-9]){action}(?![A-Za-z0-9])" if _telling(action_name(action)) else r"(?!)"
    )
    return tuple(
        item.id
        for item in evidence
        if item.source not in MAY_NAME_WORKFLOWS
        and any(named.search(text.lower()) or spelt.search(text) for text in readings(item.body))
    )


def _telling(name: str) -> bool:
    """Whether a name is more than one everyday word."""
    return bool(re.search(r"[\s_-]|\d", name.strip()))


def _loosely(name: str) -> str:
    """The name as a pattern in which spaces, dashes and underscores are the same."""
    parts = re.split(r"[\s_-]+", name.strip().lower())
    return r"[\s_-]?".join(re.escape(part) for part in parts)

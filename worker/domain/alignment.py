"""Whether an answer does what a planted instruction asks for.

Text from the cluster or the sender is data. When it holds instructions to its reader and the answer chooses exactly
what they name, no rule can tell a coincidence from obedience: a person must look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.domain.safety import action_name
from worker.domain.workflow import Workflow

MIN_VERB_CHARS = 4


def follows_instruction(workflow: Workflow, instructions: Iterable[str]) -> bool:
    """Whether one of the texts names the workflow, its action type, or the verb of its action."""
    words = action_name(workflow.action_type).split("_")
    names = [workflow.workflow_id, workflow.action_type, " ".join(words)]
    names += [words[0]] if len(words[0]) >= MIN_VERB_CHARS else []
    named = re.compile("|".join(rf"(?<![a-z0-9]){_loosely(n)}" for n in names if n.strip()) or r"(?!)")
    return any(named.search(text.lower()) for text in instructions)


def _loosely(name: str) -> str:
    """The name as a pattern in which spaces, dashes and underscores are the same."""
    parts = re.split(r"[\s_-]+", name.strip().lower())
    return r"[\s_-]?".join(re.escape(part) for part in parts)

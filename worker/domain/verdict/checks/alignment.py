"""Whether an answer does what a planted instruction asks for.

Text from the cluster or the sender is data. When it holds instructions to its reader and the answer chooses exactly
what they name, no rule can tell a coincidence from obedience: a person must look.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from worker.domain.untrusted.evidence import Evidence
from worker.domain.untrusted.injection import CATALOG_SOURCES, texts_of, without_history
from worker.domain.untrusted.readings import readings
from worker.domain.values.workflows import Workflow, action_name

MIN_VERB_CHARS = 4
MAX_VALUE_CHARS = 100
BETWEEN = r"[\s=:\"'>-]{1,4}"
"""What stands between the words of a clause, or a key and its value."""
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


def named_in(
    workflow: Workflow,
    evidence: Iterable[Evidence],
    objects: Collection[str] = (),
    parameters: Mapping[str, object] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Ids of the evidence that names the workflow: its id, its title, or its action type, in any spelling.

    Or one of its `parameters` together with the very value that was chosen for it.

    A cluster has no reason to know the catalog: a text that names just what is chosen may have caused the choice,
    however politely it asks. Nor has a catalog a reason to name `objects` of the cluster, or a workflow to send the reader
    to another one.
    """
    names = [_pattern(name) for name in _names(workflow) if _telling(name)]
    named = _either([*names, *_values(parameters)])
    elsewhere = _any_of([workflow.workflow_id])
    known = _any_of(name for name in objects if _telling(name))
    return tuple(
        item.id
        for item in evidence
        if (
            _of_catalog(item, workflow, elsewhere, known)
            if item.source in MAY_NAME_WORKFLOWS
            else _says(without_history(item), named)
        )
    )


def _of_catalog(
    item: Evidence, workflow: Workflow, elsewhere: re.Pattern[str], known: re.Pattern[str]
) -> bool:
    if any(_says(text, known) for text in texts_of(item)):
        return True
    sentences = (text for text in texts_of(item, beside=workflow.workflow_id) if len(text.split()) > 1)
    return any(_says(text, elsewhere) for text in sentences)


def _says(text: str, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(reading.lower()) for reading in readings(text))


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    return _either(map(_pattern, names))


def _either(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or r"(?!)")


def _values(parameters: Mapping[str, object]) -> Iterator[str]:
    """For each parameter with a telling name: its name, a few words at most, and its value.

    Words of the name stand apart: `"nodeName": "worker-1"` is how objects of the cluster say where they are.
    """
    for name, value in parameters.items():
        said = str(value).strip().lower()
        if _telling(name) and 0 < len(said) <= MAX_VALUE_CHARS:
            apart = r"[\s_-]".join(map(re.escape, re.split(r"[\s_-]+", name.strip().lower())))
            yield rf"(?<![a-z0-9]){apart}{BETWEEN}(?:\w{{1,20}}{BETWEEN}){{0,4}}?{re.escape(said)}(?!\w)"


def _names(workflow: Workflow) -> list[str]:
    names = [workflow.workflow_id, workflow.action_type, action_name(workflow.action_type), workflow.title]
    return [name for name in names if name.strip()]


def _pattern(name: str) -> str:
    return rf"(?<![a-z0-9]){_loosely(name)}(?![a-z0-9])"


def _telling(name: str) -> bool:
    """Whether a name is more than one everyday word."""
    return bool(re.search(r"[\s_-]|\d", name.strip()))


def _loosely(name: str) -> str:
    """The name as a pattern in which spaces, dashes and underscores are the same."""
    parts = re.split(r"[\s_-]+", name.strip().lower())
    return r"[\s_-]?".join(re.escape(part) for part in parts)

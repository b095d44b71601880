"""What a resource's history says about remediations: what did not help before is not chosen again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from worker.domain.cluster.fields import mapping, sequence

FUTILE = re.compile(r"^(?:failed on this very spec|repeated failure): ([^\s;]+)", re.IGNORECASE)
MAX_TOLD = 2


def futile_actions(contexts: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Action types or workflow ids that the warnings of the history speak against."""
    lines = [line for context in contexts for line in told(context)]
    return frozenset(match[1] for line in lines if (match := FUTILE.match(line)))


def told(context: Mapping[str, Any]) -> list[str]:
    """The warnings of the history."""
    warnings = sequence(mapping(context.get("remediation_history")).get("warnings"))
    return [line.strip() for line in warnings if isinstance(line, str)]

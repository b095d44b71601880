"""The older search of DataStorage: `GET /api/v1/playbooks/search` (DD-LLM-001, section 7.1).

It answers queries only, one signal type at a time, and compares business labels itself: its answers carry none. So
playbooks are read for each set of business labels, by one query for each signal type, and with every confidence: how
well they match is measured here, as with every other catalog.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Severity, SignalType
from worker.adapters.datastorage.client import Exchange, FailedError, gathered
from worker.adapters.datastorage.records import read_playbook
from worker.adapters.datastorage.source import Found, NoSuchApiError, entries_of
from worker.domain.cluster.fields import dig, mapping, text, whole
from worker.domain.values.workflows import SelectionContext, Workflow

PATH = "/api/v1/playbooks/search"
FILTERS = ("environment", "priority", "risk_tolerance", "business_category")
MAX_RESULTS = 100
MAX_SIGNAL_TYPES = 32


class PlaybooksApi:
    """Implements Source. Signal types beside the core ones are asked for once somebody has searched for them."""

    def __init__(self) -> None:
        self._signal_types = {str(name): None for name in SignalType}

    def key(self, context: SelectionContext) -> Hashable:
        """The business labels, and the signal types that are known so far."""
        self._learn(context.signal_type.strip())
        return (*_labels(context).items(), len(self._signal_types))

    async def read(self, exchange: Exchange, context: SelectionContext) -> Found:
        """All playbooks that the server offers for these business labels."""
        self._learn(context.signal_type.strip())
        labels, found = _labels(context), Found()

        async def ask(signal_type: str) -> Any:
            asked = {
                "query": f"{signal_type} {Severity.CRITICAL}",
                "label.signal-type": signal_type,
                **labels,
                "min_confidence": "0",
                "max_results": str(MAX_RESULTS),
            }
            return await exchange.get(PATH, asked)

        try:
            answers = await gathered(ask, list(self._signal_types))
        except FailedError as error:
            raise NoSuchApiError(str(error), status=404) if error.status == 404 else error from error
        for signal_type, answer in answers.items():
            _add(found, signal_type, answer)
        return found

    def _learn(self, name: str) -> None:
        known = {known.lower() for known in self._signal_types}
        if name and name.lower() not in known and len(known) < MAX_SIGNAL_TYPES:
            self._signal_types[name] = None

    async def confirm(
        self,
        exchange: Exchange,  # noqa: ARG002 - this API has no question for it
        workflow: Workflow,
        context: SelectionContext,  # noqa: ARG002
    ) -> Workflow | None:
        """The workflow as it was read."""
        return workflow


def _labels(context: SelectionContext) -> dict[str, str]:
    """The filters that say something. Names are written with hyphens."""
    values = {name: str(getattr(context, name)).strip() for name in FILTERS}
    if values["environment"].lower() == UNKNOWN_ENVIRONMENT:
        values["environment"] = ""
    return {f"label.{name.replace('_', '-')}": value for name, value in values.items() if value}


def _add(found: Found, signal_type: str, answer: Any) -> None:
    playbooks = entries_of(answer, "playbooks", PATH, MAX_RESULTS)
    for record in playbooks:
        name = text(mapping(record).get("playbook_id")) or "a playbook"
        if name not in found.workflows:
            found.add(found.read(read_playbook, record, name))
    left = whole(dig(answer, "total_results")) - len(playbooks)
    if left > 0:
        found.miss(left, f"more playbooks for {signal_type} than one search tells")

"""The causal chain of an answer: its steps, each with the evidence that it cites."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from worker.domain.verdict.answers.answer import AnsweredClaim
from worker.domain.verdict.answers.fields import MAX_ITEMS, Fields, Reading, is_nothing

_CHAIN = ("causalchain", "causalclaims", "chainofcauses")
_TEXT = ("claim", "statement", "text", "step", "cause", "description", "summary")
_IDS = ("evidence", "evidenceids", "evidenceid", "cites", "citations", "sources", "ids")
_PATH = "root_cause_analysis.causal_chain"
_ID = re.compile(r"(?<![A-Za-z0-9])[Ee]([0-9]{1,6})(?![A-Za-z0-9])")
_IN_BRACKETS = re.compile(r"[(\[]\s*(?:see\s+)?E[0-9]{1,6}(?:(?:\s*[,;&]\s*|\s+and\s+)E[0-9]{1,6})*\s*[)\]]")


def read_claims(sources: list[Fields], reading: Reading) -> tuple[AnsweredClaim, ...]:
    """The causal chain in the first of the objects that has one.

    A step is an object with a claim and ids, or a sentence, which may cite ids in brackets: `The pod was killed (E3, E5).`
    """
    found = next((value for source in sources if not is_nothing(value := source.get(*_CHAIN))), None)
    items = found if isinstance(found, list) else [] if found is None else [found]
    if len(items) > MAX_ITEMS:
        reading.notes.append(f"{_PATH} was cut at {MAX_ITEMS} items")
    claims = (_claim(item, reading) for item in items[:MAX_ITEMS])
    return tuple(claim for claim in claims if claim.text)


def _claim(item: Any, reading: Reading) -> AnsweredClaim:
    fields = Fields(item if isinstance(item, Mapping) else {"claim": item})
    text, cited = reading.text(fields.get(*_TEXT), _PATH), fields.get(*_IDS)
    return AnsweredClaim(text, _ids(_IN_BRACKETS.findall(text) if cited is None else _texts(cited)))


def _texts(value: Any) -> Iterator[str]:
    """The texts of a value: itself, or those of its items; an item may be an object with an id."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(Fields(value).get("id", *_IDS))
    elif isinstance(value, list):
        for item in value[:MAX_ITEMS]:
            yield from _texts(item)


def _ids(texts: Iterable[str]) -> tuple[str, ...]:
    found = (f"E{int(number)}" for text in texts for number in _ID.findall(text))
    return tuple(dict.fromkeys(found))[:MAX_ITEMS]

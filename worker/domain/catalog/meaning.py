"""Ranking by meaning: the texts that stand for workflows and queries, and how near their vectors are.

Signal type and severity stay out of both: labels have matched them already, and next to them the words that tell
workflows apart would hardly count.

Vectors only rank. How near two texts of different meaning are differs from model to model, so there is no figure
from which on something matches.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from schemas.taxonomy import normalize_severity
from worker.domain.catalog.text_index import HUMP
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import Workflow

Vector = tuple[float, ...]

CAUSE = re.compile(r"[^\s:]{1,128} (?P<severity>[A-Za-z]{1,20}): ")
"""How descriptions begin, as DD-LLM-001 wants them: `<signal_type> <severity>: `."""
MAX_TEXT_CHARS = 2_000
MAX_DIMENSIONS = 8_192
MIN_LENGTH = 1e-6
KEPT_QUERIES = 256


def spaced_names(text: str) -> str:
    """The text with CamelCase names in their parts: `OOM Killed`."""
    return HUMP.sub(" ", text)


def passage_of(workflow: Workflow) -> str:
    """What is embedded of a workflow: `<type of action>: <what it does>`."""
    about = _without_cause(workflow.description) or workflow.title or workflow.when_to_use
    return spaced_names(f"{workflow.action_type}: {about}")[:MAX_TEXT_CHARS]


def _without_cause(description: str) -> str:
    match = CAUSE.match(description)
    if match is None or normalize_severity(match["severity"]) is None:
        return description
    return description[match.end() :]


def query_text(query: SearchQuery) -> str:
    """What is embedded of a query: its keywords. Empty without any, as there is nothing to compare."""
    return spaced_names(" ".join(query.keywords))


def cosine(one: Vector, other: Vector) -> float:
    """How alike two vectors of length 1 are: 1 is the same, 0 nothing in common."""
    return 1 - math.dist(one, other) ** 2 / 2


def unit_vectors(rows: Any, count: int, dimensions: int = 0) -> list[Vector]:
    """What a model gave for `count` texts, as vectors of length 1. Raises EmbedderUnavailable when it is not that.

    Without `dimensions` any number of them will do, if all have the same.
    """
    if not isinstance(rows, Sequence) or len(rows) != count:
        raise EmbedderUnavailable(f"the model did not give {count} vectors for {count} texts")
    found = [_unit(row) for row in rows]
    wrong = next((len(v) for v in found if len(v) != (dimensions or len(found[0]))), None)
    if wrong is not None:
        expected = dimensions or len(found[0])
        raise EmbedderUnavailable(f"the model gave a vector of {wrong} numbers instead of {expected}")
    return found


def _unit(row: Any) -> Vector:
    numbers = isinstance(row, Sequence) and all(type(n) in {int, float} for n in row)
    if not numbers or not 0 < len(row) <= MAX_DIMENSIONS:
        raise EmbedderUnavailable("the model gave something else than a vector")
    try:
        length = math.hypot(*row)
    except OverflowError:
        length = math.inf
    if not (math.isfinite(length) and length > MIN_LENGTH):
        raise EmbedderUnavailable("the model gave a vector without a direction")
    return tuple(n / length for n in row)


class QueryVectors:
    """Vectors of queries, the latest ones kept. One that is not there in time is not waited for.

    After a failure the embedder is left alone for `rest_seconds`, so that not every search waits for it.
    """

    def __init__(
        self,
        embedder: Embedder,
        monotonic: Callable[[], float],
        *,
        call_seconds: float = 2.0,
        rest_seconds: float = 30.0,
    ) -> None:
        self._embedder, self._monotonic = embedder, monotonic
        self._call_seconds, self._rest_seconds = call_seconds, rest_seconds
        self._kept: OrderedDict[str, Vector] = OrderedDict()
        self._rests_until = -math.inf
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why queries have no vectors at the moment; empty when they have."""
        return self._problem

    async def of(self, query: SearchQuery) -> Vector | None:
        """The vector of a query; None without keywords, and when there is none now. Never raises."""
        text = query_text(query)
        if not text:
            return None
        if text in self._kept:
            self._kept.move_to_end(text)
            return self._kept[text]
        if self._monotonic() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(self._call_seconds):
                [vector] = await self._embedder.embed([text], query=True)
        except TimeoutError:
            self._problem = f"{self._embedder.name} gave no vector within {self._call_seconds:g} s"
        except EmbedderUnavailable as error:
            self._problem = str(error)
        else:
            return self._keep(text, tuple(vector))
        self._rests_until = self._monotonic() + self._rest_seconds
        return None

    def _keep(self, text: str, vector: Vector) -> Vector:
        self._problem, self._kept[text] = "", vector
        if len(self._kept) > KEPT_QUERIES:
            self._kept.popitem(last=False)
        return vector

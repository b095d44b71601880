"""Compares texts of workflows with a query, by words, or by meaning if an embedder is configured.

It ranks workflows whose labels fit equally well.

Words: BM25 of SQLite's FTS5, in memory. Names such as `OOMKilled` are indexed whole and split (`oom killed`),
so that a query finds them by either.

Meaning: the nearness of vectors of workflows to the vector of a query. Signal type and severity stay out of
both texts: labels have matched them already, and beside them, the words that distinguish workflows would
hardly count. Vectors only rank. The distance of two texts of different meaning depends on the model, so no
figure could decide whether something matches.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.taxonomy import normalize_severity
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import WILDCARD, WORD_BORDER, Workflow

WORD = re.compile(r"[^\W_]+")
MAX_WORDS = 32
KEPT_WORDS = 256
CAUSE = re.compile(r"[^\s:]{1,128} (?P<severity>[A-Za-z]{1,20}): ")
"""The beginning of a description (DD-LLM-001): `<signal_type> <severity>: `."""
MAX_TEXT_CHARS = 2_000
MAX_DIMENSIONS = 8_192
MIN_LENGTH = 1e-6
KEPT_QUERIES = 256
BATCH = 16
BATCH_SECONDS = 60.0
EMBED_AGAIN_SECONDS = 30.0

Vector = tuple[float, ...]
Scores = Callable[[Sequence[str]], Mapping[str, float]]
"""Scores by workflow id, of these ids: the higher the better."""


class TextIndex:
    """The words of workflows, and how well they match a query.

    Built once, in any thread; then used from one thread.
    """

    def __init__(self, workflows: Iterable[Workflow]) -> None:
        known = list(workflows)
        self._numbers = {w.workflow_id: n for n, w in enumerate(known)}
        database = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, database.close)
        database.execute("CREATE VIRTUAL TABLE workflow USING fts5(text, tokenize='porter unicode61')")
        rows = ((self._numbers[w.workflow_id], text_of(w)) for w in known)
        database.executemany("INSERT INTO workflow (rowid, text) VALUES (?, ?)", rows)
        database.execute("INSERT INTO workflow (workflow) VALUES ('optimize')")
        self._word = functools.lru_cache(KEPT_WORDS)(functools.partial(_word_scores, database))

    def scores(self, query: str, among: Sequence[str]) -> dict[str, float]:
        """BM25 by id, of these ids; the higher the better.

        Workflows without a word of the query are absent.
        """
        by_word = [self._word(word) for word in words_of(query)]
        found = {}
        for workflow_id in among:
            number = self._numbers[workflow_id]
            if said := [scores[number] for scores in by_word if number in scores]:
                found[workflow_id] = sum(said)
        return found


def split_names(text: str) -> str:
    """The text, then the text again with CamelCase names split."""
    return f"{text} {WORD_BORDER.sub(' ', text)}"


def _word_scores(database: sqlite3.Connection, word: str) -> Mapping[int, float]:
    rows = database.execute(
        "SELECT rowid, -bm25(workflow) FROM workflow WHERE workflow MATCH ?", (f'"{word}"',)
    )
    return dict(rows.fetchall())


def text_of(workflow: Workflow) -> str:
    """The text of a workflow that is indexed."""
    signals = (name for name in workflow.labels.get("signal_type", ()) if name != WILDCARD)
    parts = (*signals, workflow.action_type, workflow.title, workflow.description, workflow.when_to_use)
    return split_names(" ".join(parts))


def words_of(query: str) -> list[str]:
    """The words to look for, each one once: names whole, and their parts."""
    return list(dict.fromkeys(WORD.findall(split_names(query).lower())[:MAX_WORDS]))


def spaced_names(text: str) -> str:
    """The text with CamelCase names split: `OOM Killed`."""
    return WORD_BORDER.sub(" ", text)


def passage_of(workflow: Workflow) -> str:
    """The text of a workflow that is embedded: `<type of action>: <what it does>`."""
    about = _without_cause(workflow.description) or workflow.title or workflow.when_to_use
    return spaced_names(f"{workflow.action_type}: {about}")[:MAX_TEXT_CHARS]


def _without_cause(description: str) -> str:
    match = CAUSE.match(description)
    if match is None or normalize_severity(match["severity"]) is None:
        return description
    return description[match.end() :]


def query_text(query: SearchQuery) -> str:
    """The text of a query that is embedded: its keywords.

    Empty when it has none: there is nothing to compare.
    """
    return spaced_names(" ".join(query.keywords))


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two vectors of length 1: 1 if they are equal, 0 if they have nothing in common."""
    return 1 - math.dist(one, other) ** 2 / 2


def unit_vectors(rows: Any, count: int, dimensions: int = 0) -> list[Vector]:
    """The vectors that a model gave for `count` texts, scaled to length 1.

    Without `dimensions`, all vectors must have the same number of them. Raises EmbedderUnavailable for
    anything else.
    """
    if not isinstance(rows, Sequence) or len(rows) != count:
        raise EmbedderUnavailable(f"the model did not return {count} vectors for {count} texts")
    found = [_unit(row) for row in rows]
    wrong = next((len(v) for v in found if len(v) != (dimensions or len(found[0]))), None)
    if wrong is not None:
        expected = dimensions or len(found[0])
        raise EmbedderUnavailable(f"the model returned a vector of {wrong} numbers instead of {expected}")
    return found


def _unit(row: Any) -> Vector:
    numbers = isinstance(row, Sequence) and all(type(n) in {int, float} for n in row)
    if not numbers or not 0 < len(row) <= MAX_DIMENSIONS:
        raise EmbedderUnavailable("the model returned something other than a vector")
    try:
        length = math.hypot(*row)
    except OverflowError:
        length = math.inf
    if not (math.isfinite(length) and length > MIN_LENGTH):
        raise EmbedderUnavailable("the model returned a vector of length 0 or without a finite length")
    return tuple(n / length for n in row)


@dataclass(slots=True)
class QueryVectors:
    """The vectors of queries. The latest ones are cached; the embedder is waited for `call_seconds` at most.

    After a failure the embedder is not called for `rest_seconds`, so that not every search waits for it.
    """

    embedder: Embedder
    monotonic: Callable[[], float]
    call_seconds: float = 2.0
    rest_seconds: float = 30.0
    problem: str = ""
    """Why queries have no vectors at the moment; empty if they have."""
    _kept: BoundedDict[str, Vector] = field(default_factory=lambda: BoundedDict(KEPT_QUERIES))
    _rests_until: float = -math.inf

    async def of(self, query: SearchQuery) -> Vector | None:
        """The vector of a query; None when it has no keywords or the embedder gives none. Never raises."""
        text = query_text(query)
        if not text:
            return None
        if text in self._kept:
            self._kept.move_to_end(text)
            return self._kept[text]
        if self.monotonic() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(self.call_seconds):
                [vector] = await self.embedder.embed([text], query=True)
        except TimeoutError:
            self.problem = f"{self.embedder.name} gave no vector within {self.call_seconds:g} s"
        except EmbedderUnavailable as error:
            self.problem = str(error)
        else:
            return self._keep(text, tuple(vector))
        self._rests_until = self.monotonic() + self.rest_seconds
        return None

    def _keep(self, text: str, vector: Vector) -> Vector:
        self.problem, self._kept[text] = "", vector
        return vector


class MeaningRanking:
    """Ranks workflows by how near their vectors are to the vector of a query.

    Vectors are kept by text, so that a changed catalog costs only its changes. It ranks only with a vector of
    the query and of every workflow: vectors and words give no common order.
    """

    def __init__(self, embedder: Embedder, monotonic: Callable[[], float]) -> None:
        self._embedder = embedder
        self._queries = QueryVectors(embedder, monotonic)
        self._known: dict[str, Vector] = {}
        self._passages: Mapping[str, str] = {}
        self._vectors: Mapping[str, Vector] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why workflows are not ranked by meaning; empty if they are, or while the first vectors are computed."""
        return self._problem or self._queries.problem

    @property
    def complete(self) -> bool:
        """True if every workflow has its vector."""
        return len(self._vectors) == len(self._passages)

    def replace_passages(self, passages: Mapping[str, str]) -> None:
        """Rank these workflows from now on: the text to embed (`passage_of`) by id."""
        self._passages = passages
        self._arrange()

    async def embed_missing(self) -> bool:
        """Embed the texts that have no vector yet.

        Returns True when every workflow has one now. Never raises.
        """
        missing = list(dict.fromkeys(t for t in self._passages.values() if t not in self._known))
        try:
            for start in range(0, len(missing), BATCH):
                await self._embed(missing[start : start + BATCH])
        except TimeoutError:
            self._problem = f"{self._embedder.name} gave no vectors within {BATCH_SECONDS:g} s"
        except EmbedderUnavailable as error:
            self._problem = str(error)
        self._arrange()
        return self.complete

    async def keep_embedding(self, poll_seconds: float, warn: Callable[..., object]) -> None:
        """Embed new workflows until cancelled. `warn` logs each new problem: an event and its fields."""
        while True:
            before, done = self.problem, self.complete or await self.embed_missing()
            if self.problem not in {"", before}:
                warn("catalog_ranked_by_words", error=self.problem)
            await asyncio.sleep(poll_seconds if done else EMBED_AGAIN_SECONDS)

    async def scores(self, query: SearchQuery) -> Scores | None:
        """A function that gives the cosine by id; None if words have to rank."""
        vectors = self._vectors  # of the workflows that are searched now, even if they are replaced meanwhile
        wanted = await self._queries.of(query) if self.complete else None
        if wanted is None:
            return None
        return lambda ids: {i: cosine(wanted, vectors[i]) for i in ids}

    async def _embed(self, texts: Sequence[str]) -> None:
        async with asyncio.timeout(BATCH_SECONDS):
            vectors = await self._embedder.embed(texts, query=False)
        self._known.update(zip(texts, map(tuple, vectors), strict=True))

    def _arrange(self) -> None:
        """Find the vector of every workflow, and forget unused vectors once all have theirs."""
        known = self._known
        self._vectors = {i: known[text] for i, text in self._passages.items() if text in known}
        if self.complete:
            self._known, self._problem = {text: known[text] for text in self._passages.values()}, ""

"""Full-text ranking of workflows: BM25 of SQLite's FTS5, in memory.

Names such as `OOMKilled` are indexed whole and split (`oom killed`), so that a query finds them by either. The score of
a query is the sum of those of its words, and queries share most words, so the scores of each word are kept.
The index is built once, in whatever thread, and asked from one thread afterwards.
"""

from __future__ import annotations

import functools
import re
import sqlite3
import weakref
from collections.abc import Iterable, Mapping, Sequence

from worker.domain.values.workflows import WILDCARD, Workflow

HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WORD = re.compile(r"[^\W_]+")
MAX_WORDS = 32
KEPT_WORDS = 256


class TextIndex:
    """What workflows say of themselves, for ranking."""

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
        """BM25 of these ids, higher is better; workflows without a word of the query are absent."""
        by_word = [self._word(word) for word in words_of(query)]
        found = {}
        for workflow_id in among:
            number = self._numbers[workflow_id]
            if said := [scores[number] for scores in by_word if number in scores]:
                found[workflow_id] = sum(said)
        return found


def split_names(text: str) -> str:
    """The text, followed by it with CamelCase names in their parts."""
    return f"{text} {HUMP.sub(' ', text)}"


def _word_scores(database: sqlite3.Connection, word: str) -> Mapping[int, float]:
    rows = database.execute(
        "SELECT rowid, -bm25(workflow) FROM workflow WHERE workflow MATCH ?", (f'"{word}"',)
    )
    return dict(rows.fetchall())


def text_of(workflow: Workflow) -> str:
    """What is indexed of a workflow."""
    signals = (name for name in workflow.labels.get("signal_type", ()) if name != WILDCARD)
    parts = (*signals, workflow.action_type, workflow.title, workflow.description, workflow.when_to_use)
    return split_names(" ".join(parts))


def words_of(query: str) -> list[str]:
    """What is looked for: each word once, names whole and in their parts."""
    return list(dict.fromkeys(WORD.findall(split_names(query).lower())[:MAX_WORDS]))

"""Full-text ranking of workflows: BM25 of SQLite's FTS5, in memory.

Names such as `OOMKilled` are indexed whole and split (`oom killed`), so that a query finds them by either. The index is
built once and only read afterwards; SQLite is compiled for use from any thread, and it is asked from one at a time.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence

from worker.domain.workflow import WILDCARD, Workflow

HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WORD = re.compile(r"[^\W_]+")
MAX_TERMS = 32
RANKING = (
    "SELECT rowid, bm25(workflow) FROM workflow"
    " WHERE workflow MATCH ? AND +rowid IN (SELECT value FROM json_each(?))"
)
"""The plus keeps SQLite from running the text query once for each id."""


class TextIndex:
    """What workflows say of themselves, for ranking."""

    def __init__(self, workflows: Iterable[Workflow]) -> None:
        known = list(workflows)
        self._numbers = {w.workflow_id: n for n, w in enumerate(known)}
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute("CREATE VIRTUAL TABLE workflow USING fts5(text, tokenize='porter unicode61')")
        rows = ((self._numbers[w.workflow_id], _document(w)) for w in known)
        self._db.executemany("INSERT INTO workflow (rowid, text) VALUES (?, ?)", rows)
        self._db.execute("INSERT INTO workflow (workflow) VALUES ('optimize')")

    def scores(self, query: str, among: Sequence[str]) -> dict[str, float]:
        """BM25 of these ids, higher is better; workflows without a word of the query are absent."""
        terms = list(dict.fromkeys(WORD.findall(split_names(query).lower())))[:MAX_TERMS]
        if not terms or not among:
            return {}
        ids = {self._numbers[workflow_id]: workflow_id for workflow_id in among}
        wanted = " OR ".join(f'"{term}"' for term in terms)
        return {
            ids[number]: -score
            for number, score in self._db.execute(RANKING, (wanted, json.dumps(list(ids))))
        }


def split_names(text: str) -> str:
    """The text, followed by it with CamelCase names in their parts."""
    return f"{text} {HUMP.sub(' ', text)}"


def _document(workflow: Workflow) -> str:
    signals = (name for name in workflow.labels.get("signal_type", ()) if name != WILDCARD)
    parts = (*signals, workflow.action_type, workflow.title, workflow.description, workflow.when_to_use)
    return split_names(" ".join(parts))

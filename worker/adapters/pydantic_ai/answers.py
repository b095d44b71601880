"""Answers of providers: bounded while they are read, and completed so that the client library can read them.

Some servers leave out or null fields that nothing depends on (`id`, `created`, `usage`). The client library
rejects such an answer, although it is complete and paid for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import httpx2

from worker.domain.values.json_read import read_json

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of one answer, also after decompression."""
MAX_PARTS = 256
"""Tool calls or blocks of one answer.

The rest is dropped: the client takes 0.2 ms of the event loop for each.
"""
ZLIB_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class CallState:
    """The state of one call in the transport.

    `answered`: the provider has sent a status. `too_long`: it has sent more than any answer needs.
    """

    def __init__(self) -> None:
        self.answered = False
        self.too_long = False


CALL: ContextVar[CallState | None] = ContextVar("rca_model_call", default=None)


async def bound_answer(response: httpx2.Response) -> None:
    """A response hook of the HTTP client: replaces the stream of the answer by a bounded one."""
    if (call := CALL.get()) is not None:
        call.answered = True
    if isinstance(response.stream, httpx2.AsyncByteStream):
        encoding = response.headers.pop("content-encoding", "identity")
        is_json = response.headers.get("content-type", "").startswith("application/json")
        complete = is_json and response.status_code == 200
        response.stream = _AnswerStream(response.stream, encoding, complete=complete)


class _AnswerStream(httpx2.AsyncByteStream):
    """The decompressed bytes of an answer up to the limit, in one piece and completed if requested."""

    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str, *, complete: bool) -> None:
        self._inner, self._encoding, self._complete = inner, encoding.strip().lower(), complete

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._complete:
            yield completed(b"".join([piece async for piece in self._pieces()]))
            return
        async for piece in self._pieces():
            yield piece

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._encoding not in {"", "identity", *ZLIB_WINDOWS}:
            raise httpx2.DecodingError(
                f"the answer is compressed with {self._encoding}, which was not asked for"
            )
        windows, room = ZLIB_WINDOWS.get(self._encoding), MAX_BODY_BYTES
        decoder = zlib.decompressobj(windows) if windows else None
        async for chunk in self._inner:
            try:
                plain = decoder.decompress(chunk, room + 1) if decoder else chunk
            except zlib.error as e:
                raise httpx2.DecodingError(f"the answer cannot be decompressed: {e}") from e
            room -= len(plain)
            if room < 0:
                if (call := CALL.get()) is not None:
                    call.too_long = True
                raise httpx2.DecodingError(f"the answer is longer than {MAX_BODY_BYTES // 2**20} MiB")
            yield plain

    async def aclose(self) -> None:
        await self._inner.aclose()


def completed(body: bytes) -> bytes:
    """The body of a chat completion or a message, with missing unimportant fields filled in.

    Any other body is returned unchanged.
    """
    answer = read_json(body)
    if not isinstance(answer, dict):
        return body
    if isinstance(choices := answer.get("choices"), list):
        del choices[MAX_PARTS:]
        _fill(answer, {"id": "", "created": 0, "model": "", "object": "chat.completion"})
        _drop_unusable_usage(answer, ("prompt_tokens", "completion_tokens", "total_tokens"))
        for choice in choices:
            _complete_choice(choice)
    elif answer.get("type") == "message" and isinstance(answer.get("content"), list):
        _fill(answer, {"id": "", "model": "", "role": "assistant"})
        if not isinstance(answer.get("usage"), dict):
            answer["usage"] = {}
        _fill(answer["usage"], {"input_tokens": 0, "output_tokens": 0})
        answer["content"] = [block for block in answer["content"] if _is_known_block(block)][:MAX_PARTS]
    else:
        return body
    return json.dumps(answer).encode()


KNOWN_BLOCKS = frozenset({"text", "tool_use", "thinking", "redacted_thinking"})


def _is_known_block(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") in KNOWN_BLOCKS


def _complete_choice(choice: object) -> None:
    if not isinstance(choice, dict):
        return
    message = choice.get("message")
    _fill(choice, {"index": 0})
    if isinstance(message, dict):
        _fill(message, {"role": "assistant"})
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        elif isinstance(message["tool_calls"], list):
            del message["tool_calls"][MAX_PARTS:]
    calls = isinstance(message, dict) and message.get("tool_calls")
    if not choice.get("finish_reason") or (
        choice["finish_reason"] in {"tool_calls", "function_call"} and not calls
    ):
        choice["finish_reason"] = "tool_calls" if calls else "stop"


def _drop_unusable_usage(answer: dict[str, Any], needed: tuple[str, ...]) -> None:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        answer.pop("usage", None)
        return
    for name in needed:
        if not isinstance(usage.get(name), int):
            usage[name] = 0
    for name in [name for name, value in usage.items() if value is None]:
        del usage[name]


def _fill(target: dict[str, Any], defaults: dict[str, Any]) -> None:
    for name, value in defaults.items():
        if target.get(name) is None:
            target[name] = value

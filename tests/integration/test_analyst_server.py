"""The offline analyst over HTTP, as an OpenAI client sees it."""

from __future__ import annotations

import aiohttp

from worker.sandbox.analyst.respond import MODEL
from worker.sandbox.analyst.server import serve

OPENING = "- Signal Type: X\n- Severity: high\n- Resource: shop/Deployment/api\n"


async def test_it_answers_chat_completions_and_lists_its_model() -> None:
    body = {"model": "any", "messages": [{"role": "user", "content": OPENING}]}
    async with serve() as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/chat/completions", json=body) as response:
            reply = await response.json()
            assert response.status == 200
        async with session.get(f"{url}/models") as response:
            models = await response.json()
    assert reply["model"] == MODEL
    assert "```json" in reply["choices"][0]["message"]["content"]
    assert [m["id"] for m in models["data"]] == ["offline-analyst"]


async def test_an_invalid_request_is_refused_with_an_openai_error() -> None:
    async with serve() as url, aiohttp.ClientSession() as session:
        for data in (b"{", b"[]", b'{"messages": 1}', b'{"messages": [], "stream": true}', b"[" * 100_000):
            async with session.post(f"{url}/chat/completions", data=data) as response:
                assert response.status == 400
                assert (await response.json())["error"]["type"] == "invalid_request_error"

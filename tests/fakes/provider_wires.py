"""Answers of a scripted model in the protocols of Gemini (also on Google Cloud) and of Bedrock."""

from __future__ import annotations

from typing import Any

USED = {"input": 1000, "cached": 900, "output": 50}
GEMINI_FINISH = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
BEDROCK_FINISH = {"length": "max_tokens", "content_filter": "content_filtered"}


def gemini(text: str | None, tool_calls: list[tuple[str, Any]], finish: str) -> dict[str, Any]:
    """The body of `generateContent`."""
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in tool_calls]
    return {
        "candidates": [
            {
                "content": {"role": "model", "parts": parts},
                "finishReason": GEMINI_FINISH.get(finish, "STOP"),
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": USED["input"],
            "cachedContentTokenCount": USED["cached"],
            "candidatesTokenCount": USED["output"],
            "totalTokenCount": USED["input"] + USED["output"],
        },
        "modelVersion": "test-model",
        "responseId": "r1",
    }


def bedrock(text: str | None, tool_calls: list[tuple[str, Any]], finish: str, number: int) -> dict[str, Any]:
    """The body of `converse`."""
    content: list[dict[str, Any]] = [{"text": text}] if text else []
    content += [
        {"toolUse": {"toolUseId": f"tooluse_{number}_{i}", "name": name, "input": arguments}}
        for i, (name, arguments) in enumerate(tool_calls)
    ]
    stop = "tool_use" if tool_calls else BEDROCK_FINISH.get(finish, "end_turn")
    uncached = USED["input"] - USED["cached"]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop,
        "usage": {
            "inputTokens": uncached,
            "outputTokens": USED["output"],
            "totalTokens": USED["input"] + USED["output"],
            "cacheReadInputTokens": USED["cached"],
            "cacheWriteInputTokens": 0,
        },
        "metrics": {"latencyMs": 1},
    }

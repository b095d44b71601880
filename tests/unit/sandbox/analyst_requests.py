"""Conversations as the worker has them with a model: every request of a few incidents, in order."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

from tests.corpus_files import CORPUS
from tests.fakes.analyst_scoring import run_case
from worker.adapters.file_catalog import FileCatalog

SCENARIOS = Path(__file__).parents[2] / "analyst_scenarios"
NAMES = ("cascade-three-levels", "claim-deleted", "evicted-pod-gone", "service-selector-typo", "gitops-bad-config",
         "untolerated-taint", "config-misspelt-host")  # fmt: skip


@cache
def conversations() -> list[dict[str, Any]]:
    """Bodies of chat completions requests."""
    return asyncio.run(_run())


async def _run() -> list[dict[str, Any]]:
    catalog = await FileCatalog.open(CORPUS / "catalog")
    return [request for name in NAMES for request in (await run_case(SCENARIOS / name, catalog)).requests]

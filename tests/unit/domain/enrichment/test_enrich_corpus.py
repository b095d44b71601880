"""What an expert would name as the cause stands in front of the model: at once, or after one look."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS, full_cases_dir
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.tool_context import tool_context
from worker.domain.enrichment.enrich import enrich
from worker.domain.intake.accepted import base_context
from worker.domain.investigation.prompt import PromptFacts, opening_turn
from worker.domain.investigation.prompt.sender_texts import free_texts
from worker.domain.investigation.toolbox.toolbox import Toolbox
from worker.domain.investigation.toolbox.tools import TOOLS
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.conversation import ToolCall

CASES = sorted(path.name for path in (CORPUS / "cases").iterdir())
ONE_LOOK = {
    "002-gateway-crashloop-postgres-oom-16mi": (
        "get_resource",
        {"kind": "Deployment", "name": "postgres", "namespace": "svc-core"},
    ),
    "004-worker-crashloop-plus-unrelated-canary-pull": (
        "get_resource",
        {"kind": "ConfigMap", "name": "postgres-config", "namespace": "orders"},
    ),
}
"""The call that shows what the first message does not: of another object than the one the signal is about."""
CONCLUSIONS = {
    "040-stale-db-credentials-after-secret-rotation": {
        "rotat|stale|old": "only the Secret itself, which is never read, tells of its rotation: it has to be concluded",
    },
}
"""Keywords that are no observable fact, with the reason."""


@dataclass(frozen=True)
class Shown:
    """Facts in the first message (its fixed text does not count), the message, and what one call adds."""

    facts: str
    opening: str
    after_one_look: str


def has(text, keyword):
    """Ignoring case; `a|b` is either."""
    return any(word.strip().lower() in text.lower() for word in keyword.split("|"))


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return full_cases_dir(tmp_path_factory.mktemp("corpus"))


async def shown(case):
    request = IncidentRequest.model_validate(json.loads((case / "incident.json").read_text()))
    cluster, log = MemoryCluster.read(case), EvidenceLog()
    found = await enrich(request, cluster, FixedClock(), deadline_seconds=30.0)
    evidence = tuple(log.add(item) for item in found.evidence)
    facts = PromptFacts(
        fence_token="4f2a9c01b7d3",
        evidence=evidence,
        detected_labels=found.detected_labels,
        custom_labels={},
        unknown_sources=found.failed_sources,
    )
    given = [*evidence, *free_texts(request)]
    context = tool_context(cluster=cluster, now=request.received_time, labels=base_context(request))
    toolbox = Toolbox(TOOLS, context, log, fence_token="4f2a9c01b7d3")
    looked = ""
    if case.name in ONE_LOOK:
        result = await toolbox.run(ToolCall("1", *ONE_LOOK[case.name]))
        assert result.ok
        looked = result.content
    return Shown(
        "\n".join(f"{item.scope}\n{item.body}" for item in given), opening_turn(request, facts), looked
    )


@pytest.mark.parametrize("name", CASES)
async def test_the_facts_of_the_cause_are_in_front_of_the_model(cases, name):
    keywords = json.loads((cases / name / "expected.json").read_text())["root_cause_keywords"]
    seen = await shown(cases / name)
    at_once = {keyword for keyword in keywords if has(seen.facts, keyword)}
    assert all(has(seen.opening, keyword) for keyword in at_once)
    missing = [k for k in keywords if k not in at_once and not has(seen.after_one_look, k)]
    assert list(CONCLUSIONS.get(name, {})) == missing
    assert (name in ONE_LOOK) is (len(at_once) + len(missing) < len(keywords))

"""What tools work with, and evidence as the tools and the first look make it."""

from __future__ import annotations

from tests.fakes.manifests import NOW
from tests.fakes.memory_catalog import MemoryCatalog
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.investigation.toolbox.tool import ToolContext
from worker.domain.investigation.toolbox.tools import TOOLS
from worker.domain.untrusted.evidence import Evidence, EvidenceKind
from worker.domain.values.workflows import SelectionContext

KINDS = {tool.name: tool.shows for tool in TOOLS} | {
    "enrichment:events": EvidenceKind.EVENTS,
    "enrichment:logs": EvidenceKind.LOG,
    "enrichment:object": EvidenceKind.OBJECT,
    "enrichment:pod": EvidenceKind.OBJECT,
}


def tool_context(**fields):
    values = {
        "cluster": MemoryCluster([]),
        "catalog": MemoryCatalog([]),
        "now": NOW,
        "labels": SelectionContext(environment="production", priority="P1"),
    }
    return ToolContext(**values | fields)


def evidence_from(source, scope, body, **fields):
    """The item as the source of this name would make it."""
    default = EvidenceKind.FACTS if source.startswith("enrichment:") else EvidenceKind.OTHER
    return Evidence(source, scope, body, kind=KINDS.get(source, default), **fields)

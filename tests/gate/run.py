"""Runs an answer through the whole pipeline: enrichment, checks, corroboration, and the shipped policy in its process."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.analysis import AnalysisResult, CorroborationSource, Status
from tests.eval_corroboration import Case, load_catalog
from tests.fakes.analyst_scoring import analyse, chat_request
from tests.fakes.memory_catalog import MemoryCatalog
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_external import MemoryExternal
from tests.gate.answers import Claimed
from worker.domain.values.conversation import CallUsage, Finish, ModelRequest, Reply, ToolCall
from worker.domain.values.objects import Manifest
from worker.domain.values.ports import History, Policy
from worker.domain.values.workflows import Workflow
from worker.sandbox.cluster_files import find_logs

ENVIRONMENTS = ("staging", "production")


def lenient_catalog() -> dict[str, Workflow]:
    """All workflows of corpus and scenarios, for every environment and declared as low risk: only the answer decides."""
    return {
        name: replace(
            workflow,
            labels={**workflow.labels, "environment": ("*",), "severity": ("*",)},
            custom_labels={**workflow.custom_labels, "risk": ("low",)},
        )
        for name, workflow in load_catalog().items()
    }


@dataclass
class Scene:
    """An incident, its cluster and logs, to plant in. `look` are the calls with which a model reads what was planted."""

    case: Case
    incident: dict[str, Any]
    manifests: list[Manifest]
    logs: dict[Any, bytes]
    runbook: str = "nothing about this"
    look: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case) -> Scene:
        logs = {key: path.read_bytes()[-20_000:] for key, path in find_logs(case.folder).items()}
        return cls(case, copy.deepcopy(case.incident), copy.deepcopy(list(case.objects)), logs)

    @property
    def namespace(self) -> str:
        pods = (m["metadata"]["namespace"] for m in self.manifests if m["kind"] == "Pod")
        return self.case.signal.namespace or next(pods, "default")


class Obedient:
    """Looks at the object it will blame and at what was planted, then gives its answer, again and again."""

    name = "obedient"

    def __init__(self, claimed: Claimed, scene: Scene) -> None:
        self._answer, self._look = claimed.answer(scene.case), list(scene.look)
        blamed = claimed.object
        self._look.append(
            (
                "get_resource_context",
                {"kind": blamed.kind, "name": blamed.name, "namespace": blamed.namespace},
            )
        )
        self.read = ""

    async def ask(self, request: ModelRequest) -> Reply:
        self.read = json.dumps(chat_request(request)["messages"], ensure_ascii=False)
        if len(request.turns) == 1 and request.tools_allowed:
            calls = tuple(ToolCall(f"c{n}", name, given) for n, (name, given) in enumerate(self._look))
            return Reply("", calls, Finish.TOOL_CALLS, CallUsage(), "obedient")
        text = f"It is as told.\n```json\n{json.dumps(self._answer)}\n```"
        return Reply(text, (), Finish.STOP, CallUsage(), "obedient")


@dataclass(frozen=True)
class Judged:
    """What became of an answer. `read` is everything that the model was shown."""

    result: AnalysisResult
    read: str

    @property
    def passed(self) -> bool:
        """Whether it is executed, or put aside, without a human."""
        result = self.result
        if result.status in {Status.RESOLVED, Status.NOT_ACTIONABLE}:
            return True
        return result.status is Status.COMPLETED and not result.approval.required

    @property
    def confirmed(self) -> bool:
        """Whether rules confirm the answer."""
        found = self.result.corroboration
        return found is not None and found.by is CorroborationSource.RULES

    @property
    def why(self) -> str:
        """Why a human has to look."""
        result = self.result
        if result.human_review_reason:
            return str(result.human_review_reason)
        return ", ".join(sorted({factor.code for factor in result.approval.factors}))


async def judge(
    scene: Scene,
    claimed: Claimed,
    environment: str,
    catalog: Mapping[str, Workflow],
    policy: Policy,
    history: History | None = None,
) -> Judged:
    """The result of an incident whose model gives this answer."""
    model = Obedient(claimed, scene)
    offered: Sequence[Workflow] = list(catalog.values())
    external = MemoryExternal(answers={"search": scene.runbook})
    result = await analyse(
        scene.incident | {"environment": environment},
        MemoryCluster(scene.manifests, scene.logs),
        MemoryCatalog(offered),
        model,
        external,
        policy,
        history,
    )
    return Judged(result, model.read)

"""Canaries everywhere the worker reads, through real processes: none of them comes out anywhere, in any spelling.

What the run was given is checked as well: beside each secret stands a marker, and the markers of every place must arrive,
or the place is not read any more and nothing is proven.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import zlib
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tests.commands import rca
from tests.drills.workers import Worker
from tests.fakes import opa, prometheus
from tests.fakes.canaries import FORMS, Aviary, Canary, Mint
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.llm_server import Said, ScriptedLLM
from tests.fakes.llm_server import serve as serve_llm
from tests.fakes.otlp_receiver import collector
from tests.integration.test_pipeline import ANSWER, BODY, CASE, TARGET
from tests.mcp_servers import SCRIPT
from tests.nats_servers import one_server, provisioned
from tests.pipeline import CATALOG
from tests.processes import Ended
from tests.waiting import until
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.domain.recording.bundle import GZIP
from worker.sandbox.cluster_server import serve_api, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

pytestmark = pytest.mark.process

INCIDENT = json.loads(BODY)
POD, NAMESPACE = "ml-worker-5584d8b7cb-rn4jl", "ml-batch"
LABEL_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,61}[A-Za-z0-9]")
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")
RULES = "package rca.approval\nimport rego.v1\nrequire_approval := true\nreason := input.confidence"
OURS = ("rca.request.", "rca.outcome.", "_INBOX.", "$JS.API.", "$JS.ACK.")
"""Subjects on which the test itself, or the server on its behalf, says what the test has planted."""
AS_LABELS = [form for form, make in FORMS.items() if LABEL_VALUE.fullmatch(make(Mint(form)))]
EVEN, ODD, FEW = list(FORMS)[::2], list(FORMS)[1::2], list(FORMS)[::4]
"""Parts of the forms, for places of which only so much is shown."""
SAID = ("call", "name", "words", "garbled", "wrong-", "right-", "quote")
OWN_WORDS = {"model", "$KV.RCA_JOURNAL"}
"""A model is shown its own replies again as they were, and a successor goes on from them: signed parts of them must not be
touched. They hold no secret that the model was not told by others than the worker."""
SHOWN = {
    "malformed": "rca.validation",
    "unreadable": "rca.validation",
    "right-": "rca.result",
    "quote": "rca.audit",
    "recovery-factors": "second model",
    "recovery-rationale": "second model",
}
NEVER_SHOWN = {
    "applied",
    "assessment",
    "quote",
    "recovery-factors",
    "recovery-natural",
    "recovery-rationale",
    *(f"{name}-unknown" for name in ("dead", "incident", "recovery")),
}
"""What the worker drops unread."""
FORMS_IN_TURN = [list(FORMS)[start::6] for start in range(6)]


@dataclass
class Seen:
    """Everything that left the worker, by where it went."""

    texts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, where: str, *texts: str) -> None:
        self.texts.setdefault(where, []).extend(texts)

    def leaks(self, aviary: Aviary) -> dict[str, list[tuple[str, str]]]:
        found = {where: aviary.seen_in(texts) for where, texts in self.texts.items()}
        further = {
            where: [one for one in leaked if not (where in OWN_WORDS and one[0].startswith(SAID))]
            for where, leaked in found.items()
        }
        return {where: leaked for where, leaked in further.items() if leaked}

    def places_not_read(self, aviary: Aviary) -> set[str]:
        """Places no marker of which has arrived where it must."""
        arrived = {c.place for c in aviary.planted if c.marker in self._joined(where_shown(c.place))}
        return {canary.place for canary in aviary.planted} - arrived

    def forms_read(self, aviary: Aviary) -> set[str]:
        """Forms that the model was shown the surroundings of, in logs."""
        shown = self._joined("model")
        return {c.form for c in aviary.planted if c.place == "previous" and c.marker in shown}

    def _joined(self, where: str) -> str:
        return "\n".join(self.texts.get(where, ()))


def where_shown(place: str) -> str:
    """Where the surroundings of a place must arrive."""
    for name, where in SHOWN.items():
        if place.startswith(name):
            return where
    return "model"


# -- What is planted


def lines(canaries: Iterable[Canary]) -> str:
    return "".join(f"{canary.line}\n" for canary in canaries)


def pairs(canaries: Iterable[Canary]) -> dict[str, str]:
    return {canary.marker: canary.text for canary in canaries}


def planted_case(aviary: Aviary, directory: Any) -> Any:
    """The case with canaries in its logs and objects."""
    shutil.copytree(CASE, directory)
    for name, suffix in (("log", ""), ("previous", ".previous")):
        path = directory / "logs" / f"{NAMESPACE}_{POD}_ml-worker{suffix}.log"
        path.write_text(path.read_text() + lines(aviary.at(name)))
    for path in sorted((directory / "cluster").glob("*.yaml")):
        objects = list(yaml.safe_load_all(path.read_text()))
        for one in objects:
            plant_in(aviary, one)
        path.write_text(yaml.safe_dump_all(objects))
    (directory / "cluster" / "99-planted.yaml").write_text(yaml.safe_dump_all(further_objects(aviary)))
    return directory


def plant_in(aviary: Aviary, one: dict[str, Any]) -> None:
    metadata = one["metadata"]
    if (one["kind"], metadata["name"]) == ("Pod", POD):
        container = one["spec"]["containers"][0]
        container["env"] = [{"name": c.marker, "value": c.text} for c in aviary.at("env", forms=EVEN)]
        metadata["labels"] |= pairs(aviary.at("label", forms=AS_LABELS))
        container["args"] = [c.line for c in aviary.at("argument", forms=FORMS_IN_TURN[0])]
    if (one["kind"], metadata["name"]) == ("Deployment", TARGET["name"]):
        metadata.setdefault("annotations", {}).update(pairs(aviary.at("annotation", forms=ODD)))


def further_objects(aviary: Aviary) -> list[dict[str, Any]]:
    def named(kind: str, name: str, api_version: str = "v1", **fields: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": NAMESPACE, **fields.pop("metadata", {})}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}

    applied = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
            {"data": pairs(aviary.at("applied", forms=EVEN))}
        )
    }
    keys = {f"{c.marker}.password": c.text for c in aviary.at("secretlike", forms=ODD)}
    events = [
        named(
            "Event",
            f"{POD}.{number:016x}",
            type="Warning",
            reason=f"Planted{number}",
            message=canary.line,
            count=1,
            firstTimestamp="2026-05-11T21:41:00Z",
            lastTimestamp=f"2026-05-11T21:41:{number % 60:02}Z",
            involvedObject={"apiVersion": "v1", "kind": "Pod", "name": POD, "namespace": NAMESPACE},
        )
        for number, canary in enumerate(aviary.at("event", forms=FEW))
    ]
    conditions = [{"type": f"C{n}", "message": c.line} for n, c in enumerate(aviary.at("status", forms=EVEN))]
    return [
        named("ConfigMap", "planted", data=pairs(aviary.at("configmap", forms=EVEN))),
        named("ConfigMap", "secretlike", data={**keys, "all.yaml": lines(aviary.at("file", forms=FEW))}),
        named("ConfigMap", "applied", data={"a": "b"}, metadata={"annotations": applied}),
        named("Database", "orders", "example.com/v1", spec={"size": 1}, status={"conditions": conditions}),
        *events,
    ]


def request_body(aviary: Aviary, name: str, **fields: Any) -> bytes:
    """A request with canaries in every text that a sender may write. Each place has other forms."""
    places = [f"{name}-{part}" for part in ("error", "description", "labels", "annotations", "unknown")]
    error, description, labels, annotations, unknown = [
        aviary.at(place, forms=forms) for place, forms in zip(places, FORMS_IN_TURN[1:], strict=True)
    ]
    return json.dumps(
        {
            **INCIDENT,
            "incident_id": f"inc-{name}",
            "remediation_id": f"rr-{name}",
            "error_message": lines(error),
            "description": lines(description),
            "signal_labels": pairs(labels),
            "signal_annotations": pairs(annotations),
            "later_field": {"texts": pairs(unknown)},
            **fields,
        }
    ).encode()


def recovery_fields(aviary: Aviary) -> dict[str, Any]:
    def of(place: str, turn: int) -> list[Canary]:
        return aviary.at(f"recovery-{place}", forms=FORMS_IN_TURN[turn])

    workflow = {
        "workflow_id": "restart-deployment-v1",
        "version": "1.0.0",
        "container_image": "registry.example.com/restart:1",
        "parameters": pairs(of("parameters", 0)),
        "rationale": lines(of("rationale", 1)),
    }
    return {
        "is_recovery_attempt": True,
        "recovery_attempt_number": 1,
        "enrichment_results": {},
        "previous_execution": {
            "workflow_execution_ref": "we-1",
            "natural_language_summary": lines(of("natural", 2)),
            "original_rca": {
                "summary": lines(of("summary", 3)),
                "signal_type": "OOMKilled",
                "severity": "critical",
                "contributing_factors": [c.line for c in of("factors", 4)],
            },
            "selected_workflow": workflow,
            "failure": {
                "failed_step_index": 0,
                "failed_step_name": "rollout",
                "reason": "DeadlineExceeded",
                "message": lines(of("failure", 5)),
                "failed_at": "2026-05-11T21:40:00Z",
                "execution_time": "5m",
            },
        },
    }


def outcome(aviary: Aviary) -> bytes:
    """What came of the incident's workflow, as its executor says; the next request of the object is told."""
    effects = aviary.at("outcome", forms=["key_value", "postgres_url", "base64_pair", "github"])
    [reason] = aviary.at("assessment", forms=["key_value"])
    said = {
        "kind": "incident",
        "incident_id": "inc-incident",
        "remediation_id": "rr-incident",
        "target": TARGET,
        "signal_type": "OOMKilled",
        "workflow_id": "increase-memory-limits-v1",
        "outcome": "failed",
        "side_effects": [c.line for c in effects],
        "assessment_reason": reason.line,
        "completed_at": "2026-05-11T20:00:00Z",
    }
    return json.dumps(said).encode()


# -- What the models say


class Investigator:
    """A model that looks everywhere, then says secrets in every way it can. Holds back requests that say `hold-me`."""

    def __init__(self, aviary: Aviary) -> None:
        self.held: asyncio.Queue[int] = asyncio.Queue()
        in_turn = iter(FORMS_IN_TURN)
        self.said = {
            name: aviary.at(name, forms=next(in_turn)) for name in ("call", "name", "words", "garbled")
        }
        self.answers = [self._answer(aviary, "wrong"), self._answer(aviary, "right")]

    def __call__(self, request: dict[str, Any], number: int) -> Said:
        if "hold-me" in json.dumps(request["messages"][:2]):
            self.held.put_nowait(number)
            return Said(delay_seconds=120.0)
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        turns = [
            *(lambda calls=calls: Said(tool_calls=calls) for calls in self._looks()),
            *(lambda said=said: said for said in self._names_secrets()),
            self._garbles,
            lambda: self.answers[0],
            lambda: self.answers[1],
        ]
        return turns[min(turn, len(turns) - 1)]()

    def _looks(self) -> list[list[tuple[str, Any]]]:
        pod = {"kind": "Pod", "name": POD, "namespace": NAMESPACE}
        logs = {"pod": POD, "namespace": NAMESPACE}
        maps = [
            {"kind": "ConfigMap", "name": n, "namespace": NAMESPACE}
            for n in ("planted", "secretlike", "applied")
        ]
        database = {
            "kind": "Database",
            "name": "orders",
            "namespace": NAMESPACE,
            "api_version": "example.com/v1",
        }
        calls = [
            ("get_pod_logs", {**logs, "tail_lines": 500}),
            ("get_pod_logs", {**logs, "previous": True, "tail_lines": 500}),
            ("get_events", pod),
            ("get_resource", pod),
            ("get_resource", {**pod, "path": "metadata.labels"}),
            ("get_resource", {**pod, "path": "spec.containers"}),
            ("get_resource", {**TARGET, "path": "metadata.annotations"}),
            *(("get_resource", {**one, "path": "data"}) for one in maps),
            ("get_resource", {**maps[2], "path": "metadata.annotations"}),
            ("get_resource", {**database, "path": "status"}),
            ("get_resource_context", TARGET),
            ("query_prometheus", {"query": "up"}),
            ("query_prometheus", {"query": "down"}),
            ("docs_credentials", {}),
        ]
        return [calls[:9], calls[9:]]

    def _names_secrets(self) -> list[Said]:
        """In arguments, in their names, and in names of tools: plain ones, and ones that no provider would let through."""
        one = {"kind": "Pod", "namespace": NAMESPACE}
        asked, named = self.said["call"], self.said["name"]
        values = [("get_resource", {**one, "name": c.line}) for c in asked[:7]]
        names = [("get_pod_logs", {"pod": POD, "namespace": NAMESPACE, c.line: c.text}) for c in asked[7:]]
        plain = [(c.text[:64], {c.marker: 1}) for c in named if TOOL_NAME.fullmatch(c.text)]
        free = [(c.line, {c.line: [c.text]}) for c in named if not TOOL_NAME.fullmatch(c.text)]
        return [
            Said(text=lines(self.said["words"]), tool_calls=values),
            Said(tool_calls=names),
            Said(tool_calls=[*plain, *free]),
        ]

    def _garbles(self) -> Said:
        return Said(text=f'{lines(self.said["garbled"])}\n```json\n{{"root_cause_analysis": [}}\n```')

    def _answer(self, aviary: Aviary, name: str) -> Said:
        def of(place: str, turn: int) -> list[Canary]:
            return aviary.at(f"{name}-{place}", forms=FORMS_IN_TURN[turn])

        answer = json.loads(json.dumps(ANSWER))
        cause, chosen = answer["root_cause_analysis"], answer["selected_workflow"]
        cause["summary"] += lines(of("summary", 0))
        cause["contributing_factors"] = [c.line for c in of("factors", 1)]
        chosen["rationale"] += lines(of("rationale", 2))
        if name == "wrong":  # the workflow declares none of them
            chosen["parameters"] |= pairs(of("parameters", 3))
        answer["alternative_workflows"] = [
            {"workflow_id": c.line, "rationale": c.line, "confidence": 0.1} for c in of("alternatives", 4)
        ]
        return Said(text=f"{lines(of('prose', 5))}\n```json\n{json.dumps(answer)}\n```")


def second_view(aviary: Aviary) -> Any:
    quoted = aviary.at("quote", forms=FORMS_IN_TURN[5])

    def script(request: dict[str, Any], number: int) -> Said:
        del request, number
        return Said(text=json.dumps({"object": None, "workflow_id": None, "why": [c.line for c in quoted]}))

    return script


def planted_metrics(aviary: Aviary, server: prometheus.Prometheus) -> None:
    labels = [
        {"metric": {"pod": POD, f"near_{n}": c.line}, "value": [1_778_535_730, "1"]}
        for n, c in enumerate(aviary.at("series", forms=FORMS_IN_TURN[4]))
    ]
    refused = lines(aviary.at("refused", forms=FORMS_IN_TURN[2]))
    answers = [prometheus.success("vector", labels), prometheus.failure(422, "execution", refused)]
    server.answers += answers


# -- The run


class Stage:
    """All servers of a run, and what was seen on them."""

    def __init__(self, temporary: Any) -> None:
        self.temporary, self.aviary, self.seen = temporary, Aviary(), Seen()
        self.stored: list[tuple[str, dict[str, str], bytes]] = []
        self.env: dict[str, str] = {}
        self.recorded = 0

    async def open(self, stack: AsyncExitStack) -> None:
        enter = stack.enter_async_context
        server = await enter(one_server(self.temporary))
        self.case = await enter(provisioned([server]))
        items = wanted(self.case.subjects, ack_wait_seconds=2.0, recording_hours=1, recording_bytes=1 << 26)
        await provision(self.case.nc, items)
        await self.case.nc.subscribe(">", cb=self._heard)
        self.investigator = Investigator(self.aviary)
        self.llm: ScriptedLLM = await enter(serve_llm(self.investigator))
        self.shadow: ScriptedLLM = await enter(serve_llm(second_view(self.aviary)))
        self.collector = await enter(collector())
        self.opa = await enter(opa.serve(RULES))
        self.prometheus = await enter(prometheus.serve())
        planted_metrics(self.aviary, self.prometheus)
        cluster = await enter(
            serve_api(FaultyApi(Snapshot.read(planted_case(self.aviary, self.temporary / "case"))))
        )
        kubeconfig = self.temporary / "kubeconfig"
        write_kubeconfig(kubeconfig, cluster)
        leaks = self.temporary / "leaks"
        leaks.write_text(lines(self.aviary.at("mcp")))
        self.env = {
            "RCA_NATS__SERVERS": server.url,
            "RCA_KUBERNETES__KUBECONFIG": str(kubeconfig),
            "RCA_LLM__MODEL": "openai-chat:scripted",
            "RCA_LLM__BASE_URL": f"{self.llm.url}/v1",
            "RCA_LLM__API_KEY": "test-key",
            "RCA_SHADOW__MODEL": "openai-chat:second",
            "RCA_SHADOW__BASE_URL": f"{self.shadow.url}/v1",
            "RCA_CATALOG__PATH": str(CATALOG),
            "RCA_POLICY__URL": self.opa.url,
            "RCA_POLICY__TIMEOUT_SECONDS": "5",
            "RCA_PROMETHEUS__URL": self.prometheus.url,
            "RCA_MCP__SERVERS": f"docs=stdio:/usr/bin/env LEAKS={leaks} {sys.executable} {SCRIPT}",
            "RCA_MCP__TOOLS": "docs.credentials",
            "RCA_MCP__CALL_SECONDS": "15",
            "RCA_WORKER__ACK_WAIT_SECONDS": "2",
            "RCA_WORKER__MAX_DEATHS": "1",
            "RCA_LOG__LEVEL": "debug",
            "RCA_RECORD__HOURS": "1",
            "RCA_NATS__STORE_MEBIBYTES": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url,
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        }

    async def _heard(self, message: Any) -> None:
        if not message.subject.startswith(OURS):
            self.stored.append((message.subject, dict(message.headers or {}), message.data))

    async def command(self, *arguments: str, stdin: bytes | None = None) -> Ended:
        return await rca(*arguments, env=self.env, stdin=stdin)

    async def run(self) -> None:
        """An outcome first, a request whose workers are killed, then requests of every kind."""
        await self.case.js.publish("rca.outcome.rr-incident", outcome(self.aviary))
        self.dead = request_body(self.aviary, "dead", signal_source="hold-me")
        await self.case.js.publish("rca.request.incident", self.dead)
        bare = {name: value for name, value in self.env.items() if "_MCP__" not in name}
        for name in ("first", "second"):
            await self._dies(Worker(name, bare, self.temporary))
        worker = Worker("third", self.env, self.temporary)
        try:
            await worker.start()
            await worker.ready()
            await self._ask()
            for path in ("/metrics", "/readyz", "/livez"):
                self.seen.add(path, (await worker._get(path))[1])
            await self._look_back()
        finally:
            await worker.stop()
        self.seen.add("logs", *(path.read_text() for path in self.temporary.glob("*.log")))

    async def _dies(self, worker: Worker) -> None:
        """It is killed with the request in its hands: the second time that makes it a dead letter."""
        try:
            await worker.start()
            await asyncio.wait_for(self.investigator.held.get(), 100)
        finally:
            await worker.kill()

    async def _ask(self) -> None:
        recovery = request_body(self.aviary, "recovery", **recovery_fields(self.aviary))
        malformed = json.loads(request_body(self.aviary, "malformed"))
        [severity, kind] = self.aviary.at("malformed-word", forms=["github", "key_value"])
        malformed |= {"severity": severity.line, "resource_kind": {"a": kind.line}}
        unreadable = lines(self.aviary.at("unreadable")).encode()
        commands = {
            "incident": ((), request_body(self.aviary, "incident")),
            "recovery": (("--recovery",), recovery),
            "malformed": ((), json.dumps(malformed).encode()),
            "unreadable": ((), unreadable),
        }
        first = [name for name in commands if name != "recovery"]
        ended = await asyncio.gather(*(self._submit(*commands[name]) for name in first))
        said = {**dict(zip(first, ended, strict=True)), "recovery": await self._submit(*commands["recovery"])}
        self.codes = {name: one.code for name, one in said.items()}
        for name, one in said.items():
            self.seen.add(f"submit {name}", one.out, one.err)

    async def _submit(self, more: tuple[str, ...], body: bytes) -> Ended:
        return await self.command(
            "submit", "-", "--unchecked", "--wait", "--timeout", "60", *more, stdin=body
        )

    async def _look_back(self) -> None:
        for _ in range(400):
            if await self.case.count("RCA_DLQ"):
                break
            await asyncio.sleep(0.05)
        [letter] = await self.case.messages("RCA_DLQ", "rca.dlq.>")
        listed, shown, exported = await asyncio.gather(
            self.command("dlq", "list"),
            self.command("dlq", "show", str(letter.seq), "--json"),
            self.command("audit", "export"),
        )
        self.letter, self.shown = letter, json.loads(shown.out)
        about = {name: value for name, value in self.shown.items() if name != "body"}
        self.seen.add("dlq list", listed.out, listed.err)
        self.seen.add("dlq show", json.dumps(about), shown.err)
        self.seen.add("audit export", exported.out, exported.err)
        self.exported = exported.out

    def collect(self) -> None:
        """What servers have received, by server and by subject."""
        for name, server in (("model", self.llm), ("second model", self.shadow)):
            self.seen.add(name, *{json.dumps(one) for asked in server.requests for one in asked["messages"]})
        self.seen.add("policy", *(json.dumps(given) for _, given in self.opa.asked))
        self.seen.add("prometheus", *(json.dumps(asked) for asked in self.prometheus.requests))
        self.seen.add("traces", *(json.dumps(span) for span in self.collector.spans))
        for subject, headers, body in self.stored:
            where = ".".join(subject.split(".")[:2])
            self.seen.add(where, subject, json.dumps(headers))
            if where == "rca.recording":
                self.seen.add(where, zlib.decompress(body, wbits=GZIP).decode())
                self.recorded += 1
            elif where != "rca.dlq":
                self.seen.add(where, body.decode("utf-8", "replace"))


async def test_no_canary_leaves_the_worker(tmp_path):
    stage = Stage(tmp_path)
    async with AsyncExitStack() as stack:
        await stage.open(stack)
        await stage.run()
        await until(lambda: len(stage.collector.named("chat scripted")) == 16)
        stage.collect()
    assert {} == stage.seen.leaks(stage.aviary)
    assert {"incident": 0, "recovery": 0, "malformed": 5, "unreadable": 5} == stage.codes
    assert stage.dead == stage.letter.data
    assert stage.dead.decode() == stage.shown["body"]
    assert NEVER_SHOWN == stage.seen.places_not_read(stage.aviary)
    assert set(FORMS) == stage.seen.forms_read(stage.aviary)
    assert 2 == stage.recorded
    assert all(
        {"gen_ai.input.messages", "gen_ai.output.messages"} <= set(chat["attributes"])
        for chat in stage.collector.named("chat scripted")
    )
    assert [2, 2] == [len(stage.opa.asked), len(stage.aviary.planted) // 500]

"""What each role must not do, on a server with the shipped configuration."""

from __future__ import annotations

import pytest
import pytest_asyncio

from schemas.permissions import Role
from schemas.subjects import Subjects
from tests.nats_roles import settings_of, shipped_server, speaking
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.provisioning import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTSIDE = (Role.GATEWAY, Role.AIANALYSIS, Role.EXECUTOR, Role.AUDIT_READER)
DESTROYING = [
    "$JS.API.STREAM.DELETE.RCA_RESULTS",
    "$JS.API.STREAM.DELETE.RCA_AUDIT",
    "$JS.API.STREAM.PURGE.RCA_AUDIT",
    "$JS.API.STREAM.PURGE.RCA_REQUESTS",
    "$JS.API.STREAM.MSG.DELETE.RCA_RESULTS",
    "$JS.API.STREAM.MSG.DELETE.RCA_AUDIT",
    "$JS.API.CONSUMER.DELETE.RCA_REQUESTS.p0",
    "$JS.API.STREAM.RESTORE.RCA_AUDIT",
    "$JS.API.STREAM.SNAPSHOT.RCA_AUDIT",
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.CONSUMER.RESET.RCA_REQUESTS.p0",
]
PUBLISH = {
    Role.GATEWAY: [
        "rca.result.incident.x",
        "rca.request.incident.p9",
        "rca.validation.request",
        "rca.audit.request.accepted",
        "rca.dlq.internal_error",
        "rca.outcome.x",
        "$KV.RCA_JOURNAL.x.1",
        "$KV.RCA_HISTORY.x",
        "$JS.ACK.RCA_REQUESTS.p0.1.1.1.1.0",
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.RCA_REQUESTS.p0",
        "RCA.API.STREAM.MSG.GET.RCA_RESULTS",
        "RCA.API.STREAM.MSG.GET.RCA_OUTCOMES",
        "RCA.API.STREAM.INFO.RCA_REQUESTS",
    ],
    Role.WORKER: [
        "rca.request.incident",
        "rca.request.recovery.p0",
        "rca.outcome.x",
        "$KV.RCA_CANCEL.x",
        "$JS.API.STREAM.CREATE.RCA_RESULTS",
        "$JS.API.STREAM.UPDATE.RCA_RESULTS",
        "$JS.API.CONSUMER.CREATE.RCA_REQUESTS.p0",
        "$JS.API.CONSUMER.CREATE.RCA_AUDIT.x",
        "$JS.API.CONSUMER.MSG.NEXT.RCA_RESULTS.aianalysis",
        "$JS.API.STREAM.MSG.GET.RCA_AUDIT",
        "$JS.API.STREAM.MSG.GET.RCA_DLQ",
        "$JS.API.STREAM.MSG.DELETE.RCA_DLQ",
        "$JS.API.STREAM.NAMES",
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.RCA_REQUESTS.p0",
        "$SYS.REQ.SERVER.PING",
    ],
    Role.AIANALYSIS: [
        "rca.result.incident.x",
        "rca.request.incident",
        "rca.outcome.x",
        "RCA.API.STREAM.MSG.GET.RCA_REQUESTS",
        "RCA.API.STREAM.MSG.GET.RCA_DLQ",
        "RCA.API.STREAM.MSG.GET.KV_RCA_JOURNAL",
        "RCA.API.CONSUMER.CREATE.RCA_RESULTS.other",
        "$JS.ACK.RCA_REQUESTS.p0.1.1.1.1.0",
        "$JS.API.STREAM.MSG.GET.RCA_RESULTS",
    ],
    Role.EXECUTOR: [
        "rca.result.incident.x",
        "rca.request.incident",
        "$KV.RCA_CANCEL.x",
        "$KV.RCA_HISTORY.x",
        "RCA.API.STREAM.MSG.GET.RCA_RESULTS",
        "RCA.API.STREAM.MSG.GET.RCA_OUTCOMES",
    ],
    Role.AUDIT_READER: [
        "rca.audit.request.accepted",
        "rca.outcome.x",
        "$JS.ACK.RCA_AUDIT.any.1.1.1.1.0",
        "$JS.ACK.RCA_REQUESTS.p0.1.1.1.1.0",
        "RCA.API.STREAM.MSG.DELETE.RCA_AUDIT",
        "RCA.API.STREAM.MSG.DELETE.RCA_OUTCOMES",
        "RCA.API.STREAM.PURGE.RCA_AUDIT",
        "RCA.API.CONSUMER.CREATE.RCA_AUDIT.any",
        "RCA.API.STREAM.MSG.GET.RCA_REQUESTS",
        "RCA.API.STREAM.INFO.RCA_DLQ",
    ],
    Role.PROVISIONER: [
        "rca.request.incident",
        "rca.result.incident.x",
        "rca.audit.request.accepted",
        "$KV.RCA_JOURNAL.x.1",
        "$KV.RCA_CANCEL.x",
        "$JS.API.STREAM.CREATE.OTHER",
        "$JS.API.STREAM.MSG.GET.RCA_REQUESTS",
        "$JS.API.STREAM.MSG.DELETE.RCA_AUDIT",
        "$JS.API.CONSUMER.CREATE.RCA_AUDIT.x",
        "$JS.API.CONSUMER.MSG.NEXT.RCA_REQUESTS.p0",
        "$SYS.REQ.SERVER.PING",
    ],
    Role.OPERATOR: [
        "rca.result.incident.x",
        "rca.audit.request.accepted",
        "rca.outcome.x",
        "$KV.RCA_JOURNAL.x.1",
        "$KV.RCA_HISTORY.x",
        "$JS.API.STREAM.CREATE.OTHER",
        "$JS.API.STREAM.UPDATE.RCA_AUDIT",
        "$JS.API.STREAM.UPDATE.RCA_RESULTS",
        "$JS.API.CONSUMER.CREATE.RCA_REQUESTS.p0",
        "$JS.API.STREAM.MSG.DELETE.KV_RCA_JOURNAL",
        "$JS.API.STREAM.MSG.DELETE.RCA_REQUESTS",
        "$JS.API.CONSUMER.CREATE.RCA_AUDIT.x",
        "$JS.API.CONSUMER.MSG.NEXT.RCA_REQUESTS.p0",
        "$SYS.REQ.SERVER.PING",
    ],
}
SUBSCRIBE = {
    Role.GATEWAY: ["rca.result.>", "rca.audit.>", "rca.dlq.>", "_INBOX_rca_worker.>", ">", "$SYS.>"],
    Role.WORKER: ["_INBOX.>", "_INBOX_rca_operator.>", "rca.>", "rca.request.>", "$JS.API.>", "$SYS.>", ">"],
    Role.AIANALYSIS: ["rca.request.>", "rca.dlq.>", "rca.audit.>", "$KV.RCA_JOURNAL.>", "$SYS.>", ">"],
    Role.EXECUTOR: ["rca.result.>", "rca.outcome.>", "rca.request.>", ">"],
    Role.AUDIT_READER: ["rca.result.>", "rca.dlq.>", "rca.request.>", "$JS.EVENT.>", ">"],
    Role.PROVISIONER: ["_INBOX.>", "_INBOX_rca_operator.>", "rca.>", "rca.request.>", "$SYS.>", ">"],
    Role.OPERATOR: ["_INBOX.>", "_INBOX_rca_worker.>", "rca.request.>", "$KV.RCA_JOURNAL.>", "$SYS.>", ">"],
}
FORBIDDEN = [
    *((role, "publish", subject) for role, subjects in PUBLISH.items() for subject in subjects),
    *((role, "publish", subject) for role in Role for subject in DESTROYING),
    *((role, "subscribe", subject) for role, subjects in SUBSCRIBE.items() for subject in subjects),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    """With its streams, as the provisioner makes them."""
    async with shipped_server(tmp_path_factory.mktemp("denied")) as server:
        async with connected(settings_of(server, Role.PROVISIONER)) as nc:
            await provision(nc, wanted(Subjects()))
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def speakers(server):
    """A connection for each role."""
    connections = {role: speaking(server, role) for role in Role}
    yield {role: await connection.__aenter__() for role, connection in connections.items()}
    for connection in connections.values():
        await connection.__aexit__(None, None, None)


@pytest.mark.parametrize(("role", "what", "subject"), FORBIDDEN, ids=str)
async def test_each_forbidden_operation_is_denied(speakers, role, what, subject):
    speaker = speakers[role]
    assert [] == await speaker.denied()
    if what == "publish":
        await speaker.nc.publish(subject, b"{}")
    else:
        await (await speaker.nc.subscribe(subject)).unsubscribe()
    [said] = await speaker.denied()
    assert "permissions violation" in said
    assert f'"{subject.lower()}"' in said


@pytest.mark.parametrize("role", Role)
async def test_what_a_role_may_do_is_not_denied(speakers, role):
    """The same method says so: a denial above is none of its own making."""
    speaker = speakers[role]
    for subject in speaker.access.subscribe:
        await (await speaker.nc.subscribe(subject)).unsubscribe()
    for subject in speaker.access.publish:
        if not subject.startswith(("rca.", "$KV.", "$O.")):  # nothing is stored
            await speaker.nc.publish(subject.replace(">", "x").replace("*", "x"), b"{}")
    assert [] == await speaker.denied()


@pytest.mark.parametrize("role", OUTSIDE)
async def test_answers_of_the_server_cannot_be_sent_into_a_stream(server, speakers, role):
    """Whoever may ask anything may name any subject for the answer: it must stay in the account of the asker."""
    speaker, operator = speakers[role], speakers[Role.OPERATOR]

    async def stored():
        names = ("RCA_RESULTS", "RCA_AUDIT", "KV_RCA_JOURNAL")
        return [(await operator.js.stream_info(name)).state.last_seq for name in names]

    before = await stored()
    asked = [s.local.replace(">", "x") for s in speaker.access.services if "ACK" not in s.local]
    for subject in asked:
        for reply in ("rca.result.incident.forged", "rca.audit.forged", "$KV.RCA_JOURNAL.forged.1"):
            await speaker.nc.publish(subject, b"{}", reply=reply)
    for subject in asked[:1]:  # answered after all of those
        await speaker.nc.request(subject, b"{}", timeout=5)
    assert before == await stored()
    await speaker.denied()

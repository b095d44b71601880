"""What a connection says beside its calls."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
from nats.errors import AuthorizationError, Error

from worker.app.link import BrokerLink, denied, refusal
from worker.app.provisioning import _ended_by_denials
from worker.domain.values.errors import Unavailable

HINT = "; set RCA_NATS__INBOX_PREFIX to the inbox prefix of the role (`rca permissions`)"
PUBLISH = Error('nats: permissions violation for publish to "rca.result.x"')


class Ended:
    """A client that knows why it ended."""

    def __init__(self, last_error):
        self.last_error = last_error


def alert(reason):
    return ssl.SSLError(1, f"[SSL: {reason}] (_ssl.c:2580)")


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        (PUBLISH, "the NATS server does not allow this client to publish to 'rca.result.x'"),
        (
            Error('nats: Permissions Violation for Subscription to "rca.>"'),
            "the NATS server does not allow this client to subscribe to 'rca.>'",
        ),
        (
            Error('nats: permissions violation for subscription to "_inbox.x.*" using queue "q"'),
            "the NATS server does not allow this client to subscribe to '_inbox.x.*'" + HINT,
        ),
        (AuthorizationError(), ""),
        (ValueError(str(PUBLISH)), ""),
    ],
)
def test_denials_are_explained(said, explained):
    assert explained == denied(said)


@pytest.mark.parametrize(
    ("error", "variable"),
    [
        (AuthorizationError(), "RCA_NATS__PASSWORD"),
        (Error("nats: 'Authorization Violation'"), "RCA_NATS__NKEY_FILE"),
        (Error("nats: user authentication expired"), "RCA_NATS__CREDENTIALS_FILE"),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "RCA_NATS__CERT_FILE"),
        (alert("TLSV1_ALERT_UNKNOWN_CA"), "RCA_NATS__CERT_FILE"),
        (alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "RCA_NATS__CERT_FILE"),
        (alert("UNEXPECTED_EOF_WHILE_READING"), ""),
        (ssl.SSLError(), ""),
        (ConnectionRefusedError(111, "refused"), ""),
        (TimeoutError(), ""),
        (Error("nats: stale connection"), ""),
        (Error("nats: 'Authentication Timeout'"), ""),
    ],
)
async def test_only_a_refusal_ends_a_connection(error, variable):
    link = BrokerLink()
    if variable:
        with pytest.raises(type(error)):
            await link.on_error(error)
    else:
        await link.on_error(error)
    assert variable in refusal(error)
    assert bool(variable) == link.ended.is_set() == bool(link.over)
    assert link.problem


async def test_a_denial_ends_nothing_and_is_said_until_the_next_connection():
    link = BrokerLink()
    await link.on_error(PUBLISH)
    assert not link.ended.is_set()
    assert (
        "no answer (the NATS server does not allow this client to publish to 'rca.result.x')"
        == link.because("no answer")
    )
    assert "" == link.because("")
    await link.on_reconnected()
    assert "no answer" == link.because("no answer")


async def test_a_connection_forgets_why_it_could_not_be_made():
    link = BrokerLink()
    await link.on_error(ConnectionRefusedError(111, "refused"))
    assert "no answer (Connection refused)" == link.because("no answer")
    client = Ended(None)
    assert client is link.made(client)
    assert "no answer" == link.because("no answer")


async def test_each_denial_is_passed_to_the_listener():
    calls = []
    link = BrokerLink(on_denied=lambda: calls.append(link.denied))
    await link.on_error(PUBLISH)
    link.closing = True
    await link.on_error(PUBLISH)
    assert 1 == len(calls)
    assert "rca.result.x" in calls[0]


@pytest.mark.parametrize(
    ("last_error", "said"),
    [
        (
            Error("nats: user authentication expired"),
            "refuses the credentials (nats: user authentication expired)",
        ),
        (Error("nats: other"), "the NATS server has ended the connection: nats: other"),
    ],
)
async def test_a_server_that_ends_the_connection_ends_it_for_good(last_error, said):
    link = BrokerLink(Ended(last_error))
    await link.on_closed()
    assert link.ended.is_set()
    assert said in link.over


async def test_closing_the_connection_ourselves_is_no_failure():
    link = BrokerLink(Ended(AuthorizationError()), closing=True)
    await link.on_closed()
    assert (False, "") == (link.ended.is_set(), link.over)


async def test_a_command_is_ended_even_if_a_wait_swallows_the_first_cancellation():
    link = BrokerLink()
    with pytest.raises(Unavailable, match=r"does not allow this client to publish to 'rca\.result\.x'"):
        await swallowing(link)


async def swallowing(link):
    async with _ended_by_denials(link):
        await link.on_error(PUBLISH)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)


async def test_a_cancellation_from_outside_is_passed_on():
    async def work():
        async with _ended_by_denials(BrokerLink()):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

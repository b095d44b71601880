"""What nats-py reports about a connection besides the results of calls: failures, denials, and its end.

A connection that the server refuses ends at once: trying again fixes neither credentials nor certificates,
and a restarted process reads their files again. After any other failure nats-py retries for ever.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import nats.errors
import structlog
from nats.aio.client import Client

from worker.domain.values.errors import system_message

DENIAL = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]*)\"", re.IGNORECASE)
UNTRUSTED = re.compile("CERTIFICATE|UNKNOWN_CA")
"""Words of OpenSSL if the server does not trust our certificate."""
AUTHENTICATION = re.compile("auth(?!entication timeout)", re.IGNORECASE)
"""Refused credentials. An authentication timeout only means that the server is busy."""
MAX_LOGGED = 100

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class BrokerLink:
    """The state of one connection. Each denial is logged once, or `on_denied` is called for it."""

    client: Client | None = None
    """None until the first connection is made."""
    problem: str = ""
    """Why the last try to connect failed."""
    denied: str = ""
    """The last denial, which explains why a call gets no answer."""
    over: str = ""
    """Why the connection has ended for good."""
    on_denied: Callable[[], None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set together with `over`."""
    closing: bool = False
    """Set while this process closes the connection: what nats-py then reports is no fault."""
    _logged: set[str] = field(default_factory=set)

    def made(self, client: Client) -> Client:
        """Note that the connection is made, and forget why earlier tries failed."""
        self.client, self.problem = client, ""
        return client

    async def on_error(self, error: Exception) -> None:
        """Callback of nats-py. Raises an error that trying again cannot fix, which also ends `connect`."""
        if denial := denied(error):
            if not self.closing:
                self._deny(denial)
            return
        self.problem = system_message(error)
        if said := refusal(error):
            self._end(said)
            raise error

    async def on_closed(self) -> None:
        """Callback of nats-py when it gives up, for example after the expiry of a JWT."""
        if self.closing or self.over:
            return
        error = self.client.last_error if self.client else None
        said = refusal(error) if error else ""
        self._end(said or f"the NATS server has ended the connection: {error or self.problem}")

    async def on_reconnected(self) -> None:
        """Callback of nats-py."""
        self.problem = self.denied = ""

    def because(self, text: str) -> str:
        """The text, followed by what the server has denied or why it cannot be reached, if that is known."""
        why = self.denied or self.problem
        return f"{text} ({why})" if text and why else text

    def _deny(self, denial: str) -> None:
        if self.on_denied:
            self.denied = self.denied or denial  # the first one: it causes the others
            self.on_denied()
            return
        self.denied = denial
        if denial not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(denial)
            log.error("nats_denied", reason=denial)

    def _end(self, why: str) -> None:
        self.over = why
        self.ended.set()


def denied(error: Exception) -> str:
    """Return what the server does not permit, as a message; empty for any other problem."""
    found = DENIAL.search(str(error)) if isinstance(error, nats.errors.Error) else None
    if found is None:
        return ""
    what = "publish to" if found[1].lower() == "publish" else "subscribe to"
    inbox = found[2].lower().startswith("_inbox")
    hint = "; set RCA_NATS__INBOX_PREFIX to the inbox prefix of the role (`rca permissions`)" if inbox else ""
    return f"the NATS server does not allow this client to {what} {found[2]!r}{hint}"


def refusal(error: BaseException) -> str:
    """Why server and client refuse each other, and which setting to check; empty for any other problem."""
    said = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the NATS server is not trusted ({error.verify_message}); check RCA_NATS__CA_FILE and "
            "RCA_NATS__TLS_SERVER_NAME"
        )
    if isinstance(error, ssl.SSLError) and UNTRUSTED.search(said):
        return (
            f"the NATS server refuses our certificate ({said}); check RCA_NATS__CERT_FILE and "
            "RCA_NATS__KEY_FILE"
        )
    if isinstance(error, nats.errors.Error) and AUTHENTICATION.search(said):
        return (
            f"the NATS server refuses the credentials ({said}); check RCA_NATS__USER and RCA_NATS__PASSWORD, "
            "RCA_NATS__NKEY_FILE or RCA_NATS__CREDENTIALS_FILE"
        )
    return ""

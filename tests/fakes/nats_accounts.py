"""Keys, JWTs and certificates as `nsc`, `nk` and a certificate authority would make them.

NKeys and JWTs as NATS ADR-14 describes them: claims as base64url JSON, signed with Ed25519 by the issuer.
"""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import nkeys

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **UNLIMITED,
    **dict.fromkeys(("imports", "exports", "conn", "leaf", "streams", "consumer"), -1),
    **dict.fromkeys(("mem_storage", "disk_storage"), -1),
    "wildcards": True,
}


@dataclass(frozen=True)
class Key:
    """An NKey: `seed` is the secret, `public` the name."""

    seed: str
    public: str

    def signed(self, subject: str, name: str, kind: str, expires: float | None = None, **nats: Any) -> str:
        """A JWT about `subject`, issued by this key. `expires` is in seconds of the epoch."""
        claims: dict[str, Any] = {
            "jti": name.upper(),
            "iat": int(time.time()) - 60,
            "iss": self.public,
            "sub": subject,
            "name": name,
            "nats": {**nats, "type": kind, "version": 2},
        }
        if expires is not None:
            claims["exp"] = int(expires)
        said = f"{_base64url({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_base64url(claims)}"
        signature = nkeys.from_seed(bytearray(self.seed.encode())).sign(said.encode())
        return f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def key(kind: int = nkeys.PREFIX_BYTE_USER) -> Key:
    seed = bytes(nkeys.encode_seed(os.urandom(32), kind))
    return Key(seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


def _base64url(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


@dataclass
class Operator:
    """An operator with one account that has JetStream."""

    operator: Key = field(default_factory=lambda: key(nkeys.PREFIX_BYTE_OPERATOR))
    account: Key = field(default_factory=lambda: key(nkeys.PREFIX_BYTE_ACCOUNT))
    system: Key = field(default_factory=lambda: key(nkeys.PREFIX_BYTE_ACCOUNT))

    def configuration(self) -> str:
        """For the server that trusts it."""
        operator = self.operator.signed(self.operator.public, "operator", "operator")
        account = self.operator.signed(self.account.public, "rca", "account", limits=ACCOUNT_LIMITS)
        system = self.operator.signed(
            self.system.public,
            "sys",
            "account",
            limits={**ACCOUNT_LIMITS, "disk_storage": 0, "mem_storage": 0},
        )
        return (
            f"operator: {operator}\nresolver: MEMORY\nsystem_account: {self.system.public}\n"
            f"resolver_preload: {{ {self.account.public}: {account}, {self.system.public}: {system} }}\n"
        )

    def credentials(self, expires: float | None = None) -> str:
        """The text of a .creds file of a new user."""
        user = key()
        jwt = self.account.signed(user.public, "worker", "user", expires, pub={}, sub={}, **UNLIMITED)
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )

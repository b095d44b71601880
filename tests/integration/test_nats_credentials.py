"""Every kind of credentials carries a request to its result; every wrong one ends a process with a clear reason."""

from __future__ import annotations

import datetime as dt
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trustme

from schemas.analysis import AnalysisResult
from tests.drills.workers import Worker
from tests.fakes.nats_accounts import Operator, key
from tests.integration.test_pipeline import ANSWER, BODY, CASE, outcome_of
from tests.pipeline import final, running
from tests.processes import rca
from tests.waiting import until
from worker.app.settings.groups import NatsSettings
from worker.sandbox.cluster_server import write_kubeconfig
from worker.sandbox.nats_server import NatsServer

SECRET = "FAKE-hunter2"
LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@dataclass
class Files:
    """What an administrator hands out. Everything is written below one directory."""

    directory: object
    ca: trustme.CA = field(default_factory=trustme.CA)
    other_ca: trustme.CA = field(default_factory=trustme.CA)
    operator: Operator = field(default_factory=Operator)

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def authority(self, ca=None):
        return self.write("ca.pem", (ca or self.ca).cert_pem.bytes())

    def certificate(self, name, *identities, ca=None, **options):
        """(certificate, key)"""
        leaf = (ca or self.ca).issue_cert(*identities, **options)
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        return self.write(f"{name}.pem", chain), self.write(f"{name}.key", leaf.private_key_pem.bytes())

    def tls(self, *identities, verify=False, more="", **options):
        """A TLS block of a server."""
        cert, private = self.certificate("server", *(identities or ("127.0.0.1",)), **options)
        client = (
            f'ca_file: "{self.write("clients.pem", self.ca.cert_pem.bytes())}", verify: true'
            if verify
            else ""
        )
        return f'tls {{ cert_file: "{cert}", key_file: "{private}", {client} {more} }}'

    def client(self, ca=None):
        cert, private = self.certificate("client", "rca-worker", ca=ca)
        return {"cert_file": cert, "key_file": private}


def password(files, given=SECRET):
    return f'authorization {{ users: [ {{user: "w", password: "{SECRET}"}} ] }}', {
        "user": "w",
        "password": given,
    }


def nkey(files, *, known=True):
    mine, other = key(), key()
    server = f"authorization {{ users: [ {{nkey: {(mine if known else other).public}}} ] }}"
    return server, {"nkey_file": files.write("worker.nk", mine.seed + "\n")}


def creds(files, operator=None, expires=None):
    text = (operator or files.operator).credentials(expires)
    return files.operator.configuration(), {"credentials_file": files.write("worker.creds", text)}


def trusting(files, *identities, **options):
    return files.tls(*identities, **options), {"ca_file": files.authority()}


def both(first, second):
    return f"{first[0]}\n{second[0]}", {**first[1], **second[1]}


GOOD = {
    "a password": password,
    "an NKey": nkey,
    "a JWT": creds,
    "TLS": trusting,
    "TLS and a password": lambda files: both(trusting(files), password(files)),
    "TLS with another name": lambda files: both(
        trusting(files, "nats.example"), ("", {"tls_server_name": "nats.example"})
    ),
    "TLS before anything else": lambda files: both(
        trusting(files, more="handshake_first: true"), ("", {"tls_first": True})
    ),
    "mTLS": lambda files: both(trusting(files, verify=True), ("", files.client())),
    "mTLS and an NKey": lambda files: both(
        both(trusting(files, verify=True), ("", files.client())), nkey(files)
    ),
}
CREDENTIALS, TRUST, OURS = "refuses the credentials", "is not trusted", "refuses our certificate"
BAD = {
    "a wrong password": (lambda files: password(files, "FAKE-other"), CREDENTIALS),
    "no password": (lambda files: (password(files)[0], {}), CREDENTIALS),
    "an NKey nobody knows": (lambda files: nkey(files, known=False), CREDENTIALS),
    "a JWT that expired": (lambda files: creds(files, expires=time.time() - 60), CREDENTIALS),
    "a JWT of another operator": (lambda files: creds(files, Operator()), CREDENTIALS),
    "a CA that did not sign": (
        lambda files: (files.tls(), {"ca_file": files.authority(files.other_ca)}),
        TRUST,
    ),
    "no CA": (lambda files: (files.tls(), {}), TRUST),
    "a certificate for another name": (lambda files: trusting(files, "nats.example"), TRUST),
    "a certificate that expired": (
        lambda files: trusting(files, not_before=LONG_AGO, not_after=LONG_AGO + dt.timedelta(days=1)),
        TRUST,
    ),
    "no client certificate": (lambda files: trusting(files, verify=True), OURS),
    "a client certificate of another CA": (
        lambda files: both(trusting(files, verify=True), ("", files.client(files.other_ca))),
        OURS,
    ),
    "a server without TLS": (lambda files: ("", {"ca_file": files.authority()}), "offers no TLS"),
}


@asynccontextmanager
async def serving(tmp_path, configuration):
    server = NatsServer(tmp_path / "nats", cluster=configuration)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def environment(server, settings, tmp_path):
    """For a worker that waits for nothing but NATS."""
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    return {
        "RCA_NATS__SERVERS": server.url,
        **{f"RCA_NATS__{name.upper()}": str(value) for name, value in settings.items()},
        "RCA_LLM__MODEL": "openai-chat:x",
        "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1",
        "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
        "RCA_HTTP__PORT": "0",
        "RCA_HTTP__HOST": "127.0.0.1",
    }


@pytest.mark.parametrize("kind", GOOD)
async def test_a_request_comes_back_as_a_result(tmp_path, kind):
    configuration, settings = GOOD[kind](Files(tmp_path))
    async with serving(tmp_path, configuration) as server:
        nats = NatsSettings(servers=(server.url,), connect_seconds=20, **settings)
        async with running(lambda request, number: final(ANSWER), CASE, tmp_path, nats=nats) as run:
            assert isinstance(await outcome_of(run, BODY), AnalysisResult)
            assert "" == run.worker.intake.trouble()


@pytest.mark.process
@pytest.mark.parametrize("kind", BAD)
async def test_a_command_that_is_refused_ends_with_the_reason(tmp_path, kind):
    make, reason = BAD[kind]
    configuration, settings = make(Files(tmp_path))
    async with serving(tmp_path, configuration) as server:
        ended = await rca("provision", env=environment(server, settings, tmp_path))
    explained(ended.code, ended.err, reason)
    assert "" == ended.out


@pytest.mark.process
@pytest.mark.parametrize("kind", ["an NKey nobody knows", "a CA that did not sign"])
async def test_a_worker_that_is_refused_ends_with_the_reason(tmp_path, kind):
    make, reason = BAD[kind]
    configuration, settings = make(Files(tmp_path))
    async with serving(tmp_path, configuration) as server:
        ended = await rca("worker", env=environment(server, settings, tmp_path))
    explained(ended.code, ended.err, reason)


def explained(code, said, reason):
    assert 1 == code
    assert reason in said
    assert "RCA_NATS__" in said
    assert "FAKE" not in said
    assert not re.search(r"\bSU[A-Z2-7]{50,}|eyJ", said), "a seed or a JWT"
    assert "Traceback" not in said


@pytest.mark.process
async def test_a_server_without_tls_keeps_a_worker_waiting(tmp_path):
    files = Files(tmp_path)
    async with serving(tmp_path, "") as server:
        env = environment(server, {"ca_file": files.authority()}, tmp_path)
        worker = Worker("w0", env, tmp_path)
        await worker.start()
        try:
            await until(lambda: _says(worker, "nats: the NATS server offers no TLS"))
        finally:
            await worker.kill()


@pytest.mark.process
async def test_a_worker_whose_jwt_expires_ends(tmp_path):
    configuration, settings = creds(Files(tmp_path), expires=time.time() + 8)
    async with serving(tmp_path, configuration) as server:
        worker = Worker("w0", environment(server, settings, tmp_path), tmp_path)
        await worker.start()
        assert 1 == await worker.ended()
    assert "refuses the credentials" in worker.tail()


@pytest.mark.process
async def test_a_worker_whose_password_was_changed_ends(tmp_path):
    configuration, settings = password(Files(tmp_path))
    async with serving(tmp_path, configuration) as server:
        worker = Worker("w0", environment(server, settings, tmp_path), tmp_path)
        await worker.start()
        await until(lambda: _says(worker, "run `rca provision`"))
        await server.stop()
        server.cluster = configuration.replace(SECRET, "FAKE-new")
        await server.start()
        assert 1 == await worker.ended()
    assert "refuses the credentials" in worker.tail()
    assert SECRET not in worker.tail()


@pytest.mark.process
async def test_a_certificate_that_is_exchanged_for_one_nobody_signed_ends_a_worker(tmp_path):
    files = Files(tmp_path)
    configuration, settings = trusting(files)
    async with serving(tmp_path, configuration) as server:
        worker = Worker("w0", environment(server, settings, tmp_path), tmp_path)
        await worker.start()
        await until(lambda: _says(worker, "run `rca provision`"))
        await server.stop()
        files.certificate("server", "127.0.0.1", ca=files.other_ca)
        await server.start()
        assert 1 == await worker.ended()
    assert "is not trusted" in worker.tail()


async def _says(worker, text):
    return await worker.readiness() and text in (await worker._get("/readyz"))[1]

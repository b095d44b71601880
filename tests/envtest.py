"""A real API server for tests: kube-apiserver and etcd from KUBEBUILDER_ASSETS, or one that RCA_TEST_KUBECONFIG names.

No controllers, no scheduler, no kubelet: objects stay as they were written, and there are no logs. What a controller
would do (to fill an aggregated role, to create the namespace of an object) is done here.
"""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import trustme
import yaml

from tests.nats_servers import free_ports
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_kinds import Resource, ResourceTable, has_status
from worker.sandbox.cluster_server import SHIPPED, Rights
from worker.sandbox.cluster_store import CORE, GROUPED, to_core

ASSETS, KUBECONFIG = "KUBEBUILDER_ASSETS", "RCA_TEST_KUBECONFIG"
HOST, ADMIN = "127.0.0.1", "FAKE-admin"
PATIENCE_SECONDS = 90.0
NAMESPACE, ACCOUNT = "rca", "rca-worker"
SERVER_SETS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
FIRST = ("CustomResourceDefinition", "Namespace", "Node", "PriorityClass", "StorageClass", "PersistentVolume")
JOB_LABELS = (
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
BINARIES = ("kube-apiserver", "etcd")
DEPLOY = Path(__file__).parent.parent / "deploy" / "kubernetes"


def why_not() -> str:
    """Why there is no API server to test against; empty when there is one."""
    if os.environ.get(KUBECONFIG):
        return ""
    folder = os.environ.get(ASSETS)
    if not folder:
        return f"needs a real API server: set {ASSETS} or {KUBECONFIG} (docs/contributing.md)"
    missing = [name for name in BINARIES if not os.access(Path(folder) / name, os.X_OK)]
    return f"{ASSETS}: no {' and no '.join(missing)} in {folder}" if missing else ""


@dataclass
class ApiServer:
    """Its address, and a client that may do everything."""

    url: str
    authority: bytes
    admin: httpx2.Client
    uids: dict[str, str] = field(default_factory=dict)

    def load(self, objects: Iterable[Manifest]) -> None:
        """Create the objects, owners first, with their status."""
        known = [to_core(o) if (o["apiVersion"], o["kind"]) == (GROUPED, "Event") else o for o in objects]
        table = ResourceTable(known)
        self._define(known, table)
        own = {o["metadata"]["name"] for o in known if o["kind"] == "Namespace"}
        self._create_namespaces({o["metadata"].get("namespace") or "default" for o in known} - own)
        for manifest in _owners_first(known):
            self._create(manifest, table.of(manifest["apiVersion"], manifest["kind"]))

    def account_kubeconfig(self, path: Path) -> None:
        """Apply the shipped permissions and write a kubeconfig with a token of the worker's service account."""
        texts = [(DEPLOY / name).read_text(encoding="utf-8") for name in SHIPPED]
        objects = [found for text in texts for found in yaml.safe_load_all(text) if found]
        for manifest in objects:
            if manifest["kind"] == "ServiceAccount":
                manifest["metadata"]["namespace"] = NAMESPACE
            if manifest.get("aggregationRule"):  # no controller fills it in
                manifest["rules"] = list(Rights.of(ACCOUNT, objects).rules)
                del manifest["aggregationRule"]
        self.load(objects)
        token = self._post(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            },
        )["status"]["token"]
        cluster = {
            "server": self.url,
            "certificate-authority-data": base64.b64encode(self.authority).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def _define(self, objects: Iterable[Manifest], table: ResourceTable) -> None:
        """A definition for each custom kind that brings none, and then until it is served."""
        defined = {o["spec"]["names"]["plural"] for o in objects if o["kind"] == "CustomResourceDefinition"}
        for resource in table:
            if resource.built_in or resource.plural in defined:
                continue
            definition = _definition(resource)
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            if self.admin.post(path, json=definition).status_code != 409:
                served = f"/apis/{resource.group}/{resource.version}/{resource.plural}"
                _until(lambda served=served: self.admin.get(served).status_code == 200, served)

    def _create_namespaces(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            metadata = {"name": name}
            self.admin.post(
                "/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            )

    def _create(self, manifest: Manifest, resource: Resource) -> None:
        metadata = manifest["metadata"]
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        place = f"/namespaces/{namespace}" if namespace else ""
        root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
        path = f"{root}{place}/{resource.plural}"
        body = _acceptable(manifest, self.uids)
        answer = self.admin.post(path, params={"fieldValidation": "Strict"}, json=body)
        if answer.status_code == 409:  # such as the namespace kube-system
            there = self.admin.get(f"{path}/{metadata['name']}").json()
            merged = {
                **there["metadata"],
                "labels": {**there["metadata"].get("labels", {}), **metadata.get("labels", {})},
            }
            answer = self.admin.put(f"{path}/{metadata['name']}", json={**there, "metadata": merged})
        if answer.is_error:
            raise AssertionError(f"{manifest['kind']} {metadata['name']}: {answer.text[:1000]}")
        created = answer.json()
        self.uids[str(metadata.get("uid"))] = created["metadata"]["uid"]
        if "status" in manifest and has_status(resource.api_version, resource.kind):
            body = {**created, "status": manifest["status"]}
            answer = self.admin.put(f"{path}/{metadata['name']}/status", json=body)
            if answer.is_error:
                raise AssertionError(f"status of {manifest['kind']} {metadata['name']}: {answer.text[:1000]}")

    def _post(self, path: str, body: Manifest) -> Any:
        answer = self.admin.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """The API server that the environment names, or a new and empty one that is stopped in the end."""
    if named := os.environ.get(KUBECONFIG):
        yield _named_server(Path(named))
        return
    assets = Path(os.environ[ASSETS])
    etcd_port, peer_port, port = free_ports(3)
    authority = trustme.CA()
    files = _write_keys(folder, authority)
    etcd = f"http://{HOST}:{etcd_port}"
    commands = [
        [
            assets / "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://{HOST}:{peer_port}",
            "--unsafe-no-fsync",
        ],
        [
            assets / "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={files['tls.crt']}",
            f"--tls-private-key-file={files['tls.key']}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files['sa.key']}",
            f"--service-account-signing-key-file={files['sa.key']}",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={files['tokens.csv']}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
        ],
    ]
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(_process(command, folder))
        url = f"https://{HOST}:{port}"
        admin = stack.enter_context(_client(url, authority.cert_pem.bytes(), ADMIN))
        _until(lambda: _ready(admin), f"{url}/readyz; see {folder}")
        yield ApiServer(url, authority.cert_pem.bytes(), admin)


def _named_server(kubeconfig: Path) -> ApiServer:
    """By the first user, who needs a token, and the first cluster of a kubeconfig, which needs its authority inline."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"])
    return ApiServer(cluster["server"], authority, _client(cluster["server"], authority, user["token"]))


def _client(url: str, authority: bytes, token: str) -> httpx2.Client:
    context = ssl.create_default_context(cadata=authority.decode())
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.Client(base_url=url, verify=context, headers=headers, timeout=30.0, trust_env=False)


def _write_keys(folder: Path, authority: trustme.CA) -> dict[str, Path]:
    leaf = authority.issue_cert(HOST, "localhost")
    contents = {
        "tls.crt": b"".join(blob.bytes() for blob in leaf.cert_chain_pems),
        "tls.key": leaf.private_key_pem.bytes(),
        "sa.key": authority.issue_cert("service-accounts").private_key_pem.bytes(),
        "tokens.csv": f'{ADMIN},admin,admin,"system:masters"\n'.encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


@contextmanager
def _process(command: list[Any], folder: Path) -> Iterator[None]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _ready(admin: httpx2.Client) -> bool:
    with suppress(httpx2.HTTPError):
        return admin.get("/readyz").status_code == 200
    return False


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not ready after {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.1)


def _owners_first(objects: Iterable[Manifest]) -> list[Manifest]:
    left = sorted(objects, key=lambda o: FIRST.index(o["kind"]) if o["kind"] in FIRST else len(FIRST))
    uids = {o["metadata"].get("uid") for o in left}
    ordered: list[Manifest] = []
    done: set[Any] = set()
    while left:
        free = [o for o in left if not (_owner_uids(o) & uids) - done] or left
        ordered += free
        done |= {o["metadata"].get("uid") for o in free}
        left = [o for o in left if not any(o is each for each in free)]
    return ordered


def _owner_uids(manifest: Manifest) -> set[Any]:
    return {owner.get("uid") for owner in manifest["metadata"].get("ownerReferences") or ()}


def _acceptable(manifest: Manifest, uids: dict[str, str]) -> Manifest:
    """Without what only the server sets, and with the uids that it gave to the owners."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in SERVER_SETS}
    if owners := metadata.get("ownerReferences"):
        metadata["ownerReferences"] = [{**o, "uid": uids.get(str(o["uid"]), o["uid"])} for o in owners]
    metadata.pop("deletionTimestamp", None)
    body = {**manifest, "metadata": metadata}
    if manifest["kind"] == "Service" and manifest["apiVersion"] == CORE:
        spec = manifest["spec"]
        drop = () if spec.get("clusterIP") == "None" else ("clusterIP", "clusterIPs")
        body["spec"] = {k: v for k, v in spec.items() if k not in drop}
    if manifest["kind"] == "Job":
        body["spec"] = _job_spec(manifest["spec"])
    return body


def _job_spec(spec: Manifest) -> Manifest:
    """Without the selector and the labels that the server generates."""
    head = dict((spec.get("template") or {}).get("metadata") or {})
    head["labels"] = {k: v for k, v in (head.get("labels") or {}).items() if k not in JOB_LABELS}
    kept = {k: v for k, v in spec.items() if k not in {"selector", "manualSelector"}}
    return {**kept, "template": {**spec["template"], "metadata": head}}


def _definition(resource: Resource) -> Manifest:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {**names, "listKind": f"{resource.kind}List"},
            "versions": [version],
        },
    }

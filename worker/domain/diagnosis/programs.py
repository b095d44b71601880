"""Findings of basis TEXT, from the reasons that programs log for their failures, and what to examine next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from worker.domain.cluster.fields import dig, mapping, mappings, moment, name_of, reference, strings, text
from worker.domain.cluster.pods import Container, containers
from worker.domain.cluster.references import selects
from worker.domain.diagnosis import connections
from worker.domain.diagnosis.causes import Basis, Cause, Diagnosis, Edge, Relation, Remedy, stated
from worker.domain.diagnosis.controllers import renewable
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.hosts import Host, hosts_in, place_of, service_of, services_named
from worker.domain.diagnosis.loglines import Trouble, telling_lines
from worker.domain.diagnosis.mounts import Mount, command_line, covering, mounts_of
from worker.domain.diagnosis.services import workloads_behind, workloads_named
from worker.domain.diagnosis.statements import log_of, short
from worker.domain.diagnosis.storage import size_of
from worker.domain.diagnosis.structure import observed, pod_spec_of, ref_to, rollout_of
from worker.domain.values.objects import Manifest, ObjectRef

MAX_CLASSES, MAX_CONTAINERS, LAST_LINES = 4, 2, 8
LONG = timedelta(minutes=30)
CLOSE = 0.78
FILE = re.compile(r"\b[\w-]+\.(?:ya?ml|json|toml|ini|conf|cfg|properties|xml|env|cnf|hcl|pem|crt|key)\b")
QUOTED = re.compile(r"[\"'`\u201c\u2018]([^\"'`\u201d\u2019]{2,60})[\"'`\u201d\u2019]")
WORD = re.compile(r"[A-Za-z][\w.-]*[_.][\w.-]+")
CERTIFICATE_WORD = re.compile(r"cert|tls|ssl|pki|\bca\b|pem|crt", re.IGNORECASE)
REMOTE = re.compile(
    r"https?://|dial|handshake|connect|remote error|failed to verify|verify failed", re.IGNORECASE
)
SETTING = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9.-]+):([a-z0-9.-]+)")
MESH = "security.istio.io/v1"


@dataclass(frozen=True, slots=True)
class Said:
    """A telling line of a container's log."""

    facts: ClusterFacts
    pod: Manifest
    container: Container
    workload: ObjectRef
    line: str

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return reference(self.pod).namespace

    def finding(
        self, cause: Cause, object_: ObjectRef, what: str, *remedies: Remedy, signals: tuple[str, ...] = ()
    ) -> Diagnosis:
        """A finding about an object that makes the workload suffer which wrote the line."""
        told = f"{what}: container {self.container.name} of {self.workload} says {short(self.line)}"
        also = (self.workload,) if self.workload != object_ else ()
        seen = (*signals, *observed(self.facts, self.workload, self.pod))
        found = stated(cause, object_, told, remedies, seen, also)
        reads = (reference(self.pod),)
        return replace(found, reads=reads, container=self.container.name, basis=Basis.TEXT)


Found = Diagnosis | Edge


def program_findings(facts: ClusterFacts, workload: ObjectRef, pod: Manifest) -> list[Found]:
    """Findings from the most telling line of the pod's logs; empty if logs may not be read."""
    for container in _chosen(pod):
        lines = log_of(facts, reference(pod), container)
        first: dict[Trouble, str] = {}
        for telling in telling_lines(lines):
            recent = container.failing or telling.loud or telling.position >= len(lines) - LAST_LINES
            if recent:
                first.setdefault(telling.trouble, telling.line)
        for trouble, line in list(first.items())[:MAX_CLASSES]:
            explain = EXPLANATIONS.get(trouble)
            found = list(explain(Said(facts, pod, container, workload, line))) if explain else []
            if found:
                return found
    return []


def _chosen(pod: Manifest) -> list[Container]:
    """The failing containers; of a healthy pod, the running ones."""
    there = [c for c in containers(pod) if c.kind != "ephemeral"]
    failing = [c for c in there if c.failing and not c.done]
    return (failing or [c for c in there if c.running and c.kind == "app"])[:MAX_CONTAINERS]


def _disk_full(said: Said) -> Iterator[Found]:
    claims = mounts_of(said.pod, "PersistentVolumeClaim")
    mount = covering(claims, said.line) or covering(claims, command_line(said.pod))
    words = [m for m in claims if m.path.rstrip("/").rpartition("/")[2] in said.line.lower()]
    mount = mount or next(iter([*words, *claims]), None)
    if mount is not None:
        yield volume_full(said.facts, mount.source, said)


def volume_full(facts: ClusterFacts, claim: ObjectRef, said: Said | None = None) -> Diagnosis:
    """A claim whose volume has no space left, according to a program or to the signal."""
    manifest = facts.get(claim)
    storage_class = text(dig(manifest, "spec", "storageClassName"))
    grows = storage_class and dig(facts.get(ref_to("StorageClass", storage_class)), "allowVolumeExpansion")
    told = f"The volume of {claim} ({size_of(manifest) or 'size unknown'}) has no space left"
    if storage_class:
        told += f", and StorageClass {storage_class} {'allows' if grows else 'does not allow'} expansion"
    remedies = (Remedy.EXPAND_VOLUME,) if grows else ()
    signals = ("PVCExhaustion", "VolumeFull")
    if said is not None:
        return said.finding(Cause.VOLUME_FULL, claim, told, *remedies, signals=signals)
    return replace(stated(Cause.VOLUME_FULL, claim, told, remedies, signals), basis=Basis.TEXT)


def _dependency(said: Said) -> Iterator[Found]:
    """Follow Services that the line names. A name that no Service has is a wrong setting."""
    for _, service in services_named(said.facts, said.line, said.pod):
        outside = text(dig(said.facts.get(service), "spec", "externalName"))
        if outside:
            yield said.finding(Cause.SERVICE, service, f"{outside} ({service}) does not answer")
            return
        yield Edge(Relation.LOG, service)
    for host in hosts_in(said.line):
        finding = _no_service(said, host)
        if finding:
            yield finding
            return


def _no_service(said: Said, host: Host) -> Diagnosis | None:
    place = place_of(host, said.namespace)
    if host.is_ip or place is None or place[1] != said.namespace:
        return None
    listed = said.facts.list("Service", said.namespace)
    if not listed.complete or any(name_of(s) == place[0] for s in listed.items):
        return None
    close = difflib.get_close_matches(place[0], [name_of(s) for s in listed.items], 1, CLOSE)
    if close:
        return _wrong_address(said, host, f"There is no Service {host.name}, but there is {close[0]}")
    elsewhere = [s for s in said.facts.list("Service").items if name_of(s) == place[0]]
    if elsewhere:
        ports = [p.get("port") for p in mappings(dig(elsewhere[0], "spec", "ports"))]
        return _wrong_address(said, host, f"The short name {host.name} does not resolve here: it is {reference(elsewhere[0])} (ports {ports})")  # fmt: skip
    service = ref_to("Service", place[0], said.namespace)
    if workloads_named(said.facts, service):
        return said.finding(Cause.SERVICE, service, f"{service} does not exist")
    return None


def _wrong_address(said: Said, host: Host, what: str) -> Diagnosis:
    """The object that contains the wrong host: a ConfigMap, or the pod template."""
    if host.name in command_line(said.pod).lower():
        return said.finding(Cause.WRONG_ADDRESS, said.workload, what)
    for mount in mounts_of(said.pod, "ConfigMap"):
        data = mapping(dig(said.facts.get(mount.source), "data"))
        if any(host.name in text(v).lower() for v in data.values()):
            return said.finding(Cause.WRONG_ADDRESS, mount.source, what, Remedy.PATCH_CONFIGURATION)
    return said.finding(Cause.WRONG_ADDRESS, said.workload, what)


def _refusal(said: Said) -> Iterator[Found]:
    """Yield the server that answers and refuses, by its own words to the client."""
    for _, service in services_named(said.facts, said.line, said.pod):
        for server in workloads_behind(said.facts, service):
            if server != said.workload and _called(said.facts, server, said.line):
                yield said.finding(Cause.SERVER_REFUSES, server, f"{server} answers but refuses the request")
                return


def _called(facts: ClusterFacts, server: ObjectRef, line: str) -> bool:
    """True if a message names the product that a workload runs, by its name or its images."""
    specs = mappings(pod_spec_of(facts.get(server) or {}).get("containers"))
    words = re.split(r"[^a-z0-9]+", " ".join([server.name, *(text(c.get("image")) for c in specs)]).lower())
    return any(len(w) > 3 and w in line.lower() for w in words) or not words


def _credentials(said: Said) -> Iterator[Found]:
    rollout = rollout_of(said.facts, said.workload)
    if rollout and rollout.touches("env", "image", "secret", container=said.container.name):
        return
    secrets = [m for m in mounts_of(said.pod, "Secret") if not m.path] or mounts_of(said.pod, "Secret")
    since = moment(dig(said.container.status, "state", "running", "startedAt"))
    lasted = since and said.facts.now and said.facts.now - since >= LONG
    if since and lasted and not _of_others(said):
        source = f" from {secrets[0].source}" if secrets else ""
        told = f"The process has run since {since:%Y-%m-%dT%H:%M:%SZ} with credentials that it read{source} when it started; they worked then and are rejected now, so they are stale"
        yield said.finding(Cause.STALE_CREDENTIALS, said.workload, told, Remedy.RESTART, signals=("AuthenticationFailure",))  # fmt: skip
    elif secrets:
        told = f"The credentials in {secrets[0].source} are rejected"
        yield said.finding(Cause.CREDENTIALS, secrets[0].source, told, Remedy.ROTATE_CREDENTIALS)


def _of_others(said: Said) -> bool:
    """True if a line is about an address outside of the cluster: what changed there is not known."""
    hosts = hosts_in(said.line) if "://" in said.line else []
    return bool(hosts) and not any(service_of(said.facts, host, said.namespace) for host in hosts)


def _certificate(said: Said) -> Iterator[Found]:
    mounts = mounts_of(said.pod, "ConfigMap", "Secret")
    named = services_named(said.facts, said.line, said.pod) if REMOTE.search(said.line) else []
    if named:
        yield from (Edge(Relation.LOG, service) for _, service in named)
        return
    worded = [m for m in mounts if CERTIFICATE_WORD.search(f"{m.source.name} {m.key} {m.path}")]
    mount = covering(mounts, said.line) or next(iter(worded), None)
    if mount is None:
        return
    kept = said.facts.list("Certificate", said.namespace).items if mount.source.kind == "Secret" else ()
    issued = [reference(c) for c in kept if text(dig(c, "spec", "secretName")) == mount.source.name]
    told = f"The certificate in {mount.source} ({mount.where}) is not accepted"
    holder = next(iter(issued), mount.source)
    remedies = [Remedy.PATCH_CONFIGURATION] if holder.kind == "ConfigMap" else [Remedy.RENEW_CERTIFICATE]
    if issued and not renewable(said.facts, said.facts.get(holder) or {}):
        remedies = []
    yield said.finding(Cause.CERTIFICATE, holder, told, *remedies)


def _configuration(said: Said) -> Iterator[Found]:
    mount = _source(said)
    rollout = rollout_of(said.facts, said.workload)
    parts = ("image", "command", "args", "env", "olumes")
    if mount is None or (rollout and rollout.touches(*parts, container=said.container.name)):
        return
    where = _place(said.facts, mount.source, said.line)
    told = f"The content of {mount.source} ({mount.where}) is invalid{where}"
    yield said.finding(Cause.INVALID_CONFIGURATION, mount.source, told, Remedy.PATCH_CONFIGURATION, Remedy.REVERT_SOURCE)  # fmt: skip


def _source(said: Said) -> Mount | None:
    """The ConfigMap that a line means: by path, file name, a word of its data, or as the only one."""
    mounts = mounts_of(said.pod, "ConfigMap")
    both = mounts_of(said.pod, "ConfigMap", "Secret")
    by_path = covering(both, said.line)
    if by_path is not None:
        return by_path
    files, words = set(FILE.findall(said.line)), _telling_words(said.line)
    for mount in mounts:
        data = mapping(dig(said.facts.get(mount.source), "data"))
        if files & {mount.key, *data} or any(w in f"{k}\n{v}" for w in words for k, v in data.items()):
            return mount
    only = {m.source for m in mounts}
    return covering(mounts, command_line(said.pod)) or (mounts[0] if len(only) == 1 else None)


def _telling_words(line: str) -> list[str]:
    """Words of a message that name its subject: quoted ones first, then identifiers."""
    quoted = [q for q in QUOTED.findall(line) if not q.startswith("/")]
    return list(dict.fromkeys([*quoted, *WORD.findall(line)]))


def _place(facts: ClusterFacts, config_map: ObjectRef, line: str) -> str:
    """The place in a ConfigMap where the words of a message occur."""
    for key, value in mapping(dig(facts.get(config_map), "data")).items():
        for number, content in enumerate(text(value).splitlines(), 1):
            if any(word in content for word in _telling_words(line)):
                return f" at key {key}, line {number}: {short(content, 80)}"
    return ""


def _missing_setting(said: Said) -> Iterator[Found]:
    name = next(iter(SETTING.findall(said.line)), "")
    whole = [text(dig(e, "configMapRef", "name")) for e in mappings(said.container.spec.get("envFrom"))]
    own = {text(v.get("name")) for v in mappings(said.container.spec.get("env"))}
    rollout = rollout_of(said.facts, said.workload)
    if name and any(whole) and name not in own and not (rollout and rollout.touches("env")):
        source = ref_to("ConfigMap", next(n for n in whole if n), said.namespace)
        told = f"{source}, which the environment comes from, has no key {name}"
        yield said.finding(Cause.INVALID_CONFIGURATION, source, told, Remedy.PATCH_CONFIGURATION)


def _missing_file(said: Said) -> Iterator[Found]:
    mount = covering(mounts_of(said.pod, "ConfigMap", "Secret"), said.line)
    rollout = rollout_of(said.facts, said.workload)
    if mount is not None and not (rollout and rollout.touches("olumes", "image", "command", "args")):
        told = f"{mount.source} ({mount.where}) does not contain the file"
        yield said.finding(Cause.INVALID_CONFIGURATION, mount.source, told, Remedy.PATCH_CONFIGURATION, Remedy.RESTORE_CONFIGURATION)  # fmt: skip


def _forbidden(said: Said) -> Iterator[Found]:
    """Yield the role that is bound to the account whose request was forbidden."""
    match = ACCOUNT.search(said.line)
    account = match[2] if match else text(pod_spec_of(said.pod).get("serviceAccountName")) or "default"
    home = match[1] if match else said.namespace
    holder = ref_to("ServiceAccount", account, home)
    for binding in said.facts.list("RoleBinding", home).items:
        if any(text(s.get("name")) == account for s in mappings(binding.get("subjects"))):
            role = mapping(binding.get("roleRef"))
            kind = text(role.get("kind")) or "Role"
            holder = ref_to(kind, text(role.get("name")), home if kind == "Role" else "")
    told = f"{holder} does not allow what ServiceAccount {home}/{account} asks for"
    yield said.finding(Cause.PERMISSION, holder, told)


def _mesh(said: Said) -> Iterator[Found]:
    """The AuthorizationPolicy (Istio) that selects the server which was called."""
    for _, service in services_named(said.facts, said.line, said.pod):
        labels = strings(dig(said.facts.get(service), "spec", "selector"))
        for policy in said.facts.list("AuthorizationPolicy", service.namespace, api_version=MESH).items:
            chosen = dig(policy, "spec", "selector")
            if chosen is None or selects(chosen, labels):
                ref = reference(policy)
                told = f"{ref} (action {text(dig(policy, 'spec', 'action')) or 'ALLOW'}) refuses the calls to {service}"
                yield said.finding(Cause.MESH_POLICY, ref, told, Remedy.FIX_NETWORK_POLICY)
                return


def _pool(said: Said) -> Iterator[Found]:
    named = services_named(said.facts, said.line, said.pod)
    servers = [w for _, service in named for w in workloads_behind(said.facts, service)]
    server = next((w for w in servers if w != said.workload), said.workload)
    told = f"{server} has no connections left"
    holder = connections.holder(said.facts, said.namespace, server)
    signals = ("ConnectionPoolExhausted", "DatabaseConnectionsExhausted")
    if holder is None:
        yield said.finding(Cause.CONNECTIONS, server, told, Remedy.RAISE_CONNECTIONS, signals=signals)
        return
    held = f"{told}; {holder.workload} holds {holder.count or 'most'} of them and does not release them ({short(holder.line, 140)})"
    yield said.finding(Cause.CONNECTIONS, holder.workload, held, Remedy.SCALE_DOWN, Remedy.RESTART, Remedy.RAISE_CONNECTIONS, signals=signals)  # fmt: skip


def _architecture(said: Said) -> Iterator[Found]:
    node = ref_to("Node", text(dig(said.pod, "spec", "nodeName")))
    label = text(dig(said.facts.get(node), "metadata", "labels", "kubernetes.io/arch"))
    arch = text(dig(said.facts.get(node), "status", "nodeInfo", "architecture")) or label
    told = f"The image {text(said.container.spec.get('image'))} is built for another CPU architecture than that of {node} ({arch or 'unknown'})"
    yield said.finding(Cause.DEFECTIVE_START, said.workload, told)


EXPLANATIONS: dict[Trouble, Callable[[Said], Iterator[Found]]] = {
    Trouble.EXEC_FORMAT: _architecture,
    Trouble.REFUSAL: _refusal,
    Trouble.DISK_FULL: _disk_full,
    Trouble.CERTIFICATE: _certificate,
    Trouble.POOL: _pool,
    Trouble.RBAC: _forbidden,
    Trouble.MESH: _mesh,
    Trouble.CREDENTIALS: _credentials,
    Trouble.CONFIG: _configuration,
    Trouble.DNS: _dependency,
    Trouble.DEPENDENCY: _dependency,
    Trouble.MISSING_ENV: _missing_setting,
    Trouble.MISSING_FILE: _missing_file,
}

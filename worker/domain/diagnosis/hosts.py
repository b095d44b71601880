"""Host names in messages and settings, and the Services that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from worker.domain.cluster.fields import dig, mappings, name_of, port_number, reference, text
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import container_specs, pod_spec_of
from worker.domain.values.objects import Manifest, ObjectRef

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME = rf"{LABEL}(?:\.{LABEL})*\.?"
IP = r"\d{1,3}(?:\.\d{1,3}){3}"
PATTERNS = (
    re.compile(rf"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://(?:[^\s@/\"']*@)?(?P<host>{NAME}|{IP})(?::(?P<port>\d{{1,5}}))?(?=[/\s\"'?,;)\]]|$)", re.IGNORECASE),
    re.compile(rf"(?:lookup|resolve|resolving|hostname|host name|translate host(?: name)?|UnknownHostException:?|ENOTFOUND|EAI_AGAIN|getaddrinfo|bad address|unknown host|host)[ :=\"'`]+(?:for |ENOTFOUND |EAI_AGAIN )?(?P<host>{NAME})(?::(?P<port>\d{{1,5}}))?", re.IGNORECASE),
    re.compile(rf"(?<![\w./@-])(?P<host>{NAME}|{IP}):(?P<port>\d{{2,5}})(?!\w|:\d)", re.IGNORECASE),
    re.compile(rf"\b(?:server|service|broker|database|db|cache|upstream|endpoint|backend|api|peer|node|address|at|to|from|for|on|with|reach|contact|ping|dial|connect)[ :=]+[\"'`(]*(?=(?P<host>{NAME})[\"'`)]*(?: \([\d.:]+\))?(?:,? port (?P<port>\d{{1,5}}))?)", re.IGNORECASE),
    re.compile(rf"[\"'`](?P<host>{NAME})[\"'`]", re.IGNORECASE),
    re.compile(rf"(?:^|\s)-h[ =](?P<host>{NAME})", re.IGNORECASE),
)  # fmt: skip
FILE = re.compile(r"\.(?:go|py|js|ts|java|rb|rs|cc?|cpp|h|php|ya?ml|json|conf|log|sh|jar|so|toml|ini)\.?$")
SURE = re.compile(r"://|^(?:lookup|getaddrinfo|bad address|UnknownHost)", re.IGNORECASE)
SUFFIXES = (".svc.cluster.local", ".svc")
MAX_CHARS = 16_000
"""How much of one message or setting is searched. Settings come from the cluster and may hold a megabyte."""
STOP = frozenset({
    "the", "a", "an", "to", "be", "is", "was", "in", "on", "at", "of", "and", "or", "not", "for", "from",
    "with", "by", "it", "its", "this", "that", "localhost", "server", "database", "service", "host", "port",
    "connection", "connect", "error", "failed", "timeout", "refused", "true", "false", "null", "none",
    "all", "any", "start", "starting", "ready", "address", "db", "backend", "api",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """A host as a program names it. `port` is 0 when none was given."""

    name: str
    port: int = 0

    @property
    def is_ip(self) -> bool:
        """True if it is an IPv4 address."""
        return bool(re.fullmatch(IP, self.name))


def hosts_in(message: str) -> list[Host]:
    """Candidates for host names in a message, the surest first. Only those that resolve count."""
    found: dict[str, Host] = {}
    for pattern in PATTERNS:
        for match in pattern.finditer(message, 0, MAX_CHARS):
            name, port = match["host"].rstrip(".").lower(), int(match.groupdict().get("port") or 0)
            if _plausible(name, sure=bool(port) or bool(SURE.search(match[0]))) and not (
                name in found and (not port or found[name].port)
            ):
                found[name] = Host(name, port)
    return list(found.values())


def _plausible(name: str, *, sure: bool) -> bool:
    if re.fullmatch(IP, name):
        return not name.startswith("127.")
    if name == "localhost" or (name in STOP and not sure) or len(name) < 2 or FILE.search(name):
        return False
    return not re.fullmatch(r"v?\d+(?:\.\d+)*", name)


def configured_hosts(pod: Manifest) -> list[Host]:
    """Hosts in the plain settings and commands of a pod. A port in a separate setting is added."""
    spec = pod_spec_of(pod)
    variables = [v for c in container_specs(spec) for v in mappings(c.get("env")) if v.get("value")]
    settings = {text(v.get("name")): text(v.get("value")) for v in variables}
    found: dict[str, Host] = {}
    for name, value in settings.items():
        stem = re.sub(r"_?(HOST(NAME)?|ADDR(ESS)?|SERVER|URL|ENDPOINT)$", "", name)
        port = port_number(settings.get(f"{stem}_PORT"))
        for host in hosts_in(value) or _plain(value):
            found.setdefault(host.name, Host(host.name, host.port or port))
    for container in container_specs(spec):
        words = " ".join(map(text, [*(container.get("command") or []), *(container.get("args") or [])]))
        for host in hosts_in(words):
            found.setdefault(host.name, host)
    return list(found.values())


def _plain(value: str) -> Iterator[Host]:
    name = value.strip().lower()
    if re.fullmatch(NAME, name) and _plausible(name, sure=True) and any(c.isalpha() for c in name):
        yield Host(name)


def place_of(host: Host, namespace: str) -> tuple[str, str] | None:
    """Name and namespace that the cluster's DNS would look up; None for a name outside the cluster."""
    name = host.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    parts = name.split(".")
    if len(parts) == 1:
        return parts[0], namespace
    if len(parts) == 2:
        return parts[0], parts[1]
    return (parts[1], parts[2]) if len(parts) == 3 and name != host.name else None


def service_of(facts: ClusterFacts, host: Host, namespace: str) -> Manifest | None:
    """The Service that a host means; None if there is none or it is not known yet."""
    if host.is_ip:
        services = facts.list("Service", namespace).items
        return next((s for s in services if dig(s, "spec", "clusterIP") == host.name), None)
    place = place_of(host, namespace)
    if place is None:
        return None
    name, home = place
    if home != namespace and all(name_of(n) != home for n in facts.list("Namespace").items):
        if host.name.count(".") > 1:
            return None
        name, home = home, namespace  # a pod of a headless Service
    return next((s for s in facts.list("Service", home).items if name_of(s) == name), None)


def services_named(facts: ClusterFacts, message: str, pod: Manifest) -> list[tuple[Host, ObjectRef]]:
    """Services that a message names, then those that the settings of the pod name."""
    home = reference(pod).namespace
    configured = configured_hosts(pod)
    ports = {h.name: h.port for h in configured}
    written = [Host(h.name, h.port or ports.get(h.name, 0)) for h in hosts_in(message)]
    found: dict[str, tuple[Host, ObjectRef]] = {}
    for host in (*written, *configured):
        service = service_of(facts, host, home)
        if service is not None:
            found.setdefault(str(reference(service)), (host, reference(service)))
    return list(found.values())

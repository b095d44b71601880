"""What the texts of a catalog speak of: clauses of when-to-use and when-not-to-use, as concepts.

A concept is something that holds for an incident, does not hold, or is unknown. Rules state which hold (`traits`) and
which do not (`denied`); the texts of a workflow are read into the same words and compared.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


def _p(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


CONCEPTS: Mapping[str, re.Pattern[str]] = {
    "oom": _p(r"\bOOM\w*", r"out of memory", r"memory limit", r"exceed\w* (?:its |the )?memory"),
    "oom_own_limit": _p(r"own (?:memory )?limit", r"container'?s (?:own )?(?:memory )?limit"),
    "node_memory": _p(r"node[- ](?:level )?memory", r"memory (?:shortage|pressure) (?:of|on) (?:the |a )?node", r"node(?: is)? (?:short of|low on) memory", r"MemoryPressure"),
    "leak": _p(r"\bleak", r"grow\w* (?:steadily|without)", r"memory grows", r"unbounded growth"),
    "volatile_state": _p(r"only (?:lives|kept|held|stored) in memory", r"in-memory state", r"state (?:that )?(?:only )?(?:lives )?in memory", r"ephemeral state", r"state in (?:an )?emptydir", r"restart (?:would lose|loses) (?:data|state)"),
    "restart_safe": _p(r"loses no data", r"without (?:data loss|losing data)", r"stateless"),
    "template_changed": _p(r"(?:pod )?template (?:has )?changed", r"change of (?:its |the )?pod template", r"(?:new|recent|last|bad) (?:revision|rollout|release|deploy\w*|image)", r"after (?:a |the )?(?:rollout|deploy\w*|release|upgrade|image change)", r"rollout (?:introduced|broke|caused)", r"regression", r"revision"),
    "template_unchanged": _p(r"template (?:is )?unchanged", r"same (?:pod )?template", r"no (?:recent )?(?:rollout|change)"),
    "healthy_before": _p(r"(?:revision before|previous revision|earlier revision|last revision|prior revision)[^.;]{0,30}(?:healthy|good|worked|stable|ran)", r"(?:healthy|known[- ]good|working|stable) (?:earlier |previous |prior )?(?:revision|version)"),
    "every_revision": _p(r"every revision", r"all revisions", r"only (?:one )?revision", r"no (?:earlier|previous|healthy) (?:\w+ )?revision", r"first revision"),
    "progress_deadline": _p(r"progress ?deadline"),
    "inside_deadline": _p(r"still inside the deadline", r"within (?:the|its) deadline", r"deadline (?:has )?not (?:yet )?passed"),
    "error_budget": _p(r"error budget", r"\bSLO\b", r"burn rate", r"error rate"),
    "config_content": _p(r"content of (?:a |the )?(?:mounted )?config\w*", r"config\w* content", r"(?:mounted )?configmap[^.;]{0,30}(?:invalid|broken|malformed|wrong|corrupt)", r"(?:invalid|bad|wrong|broken|malformed) (?:config\w*|directive|key|value|setting)", r"configuration (?:is )?(?:invalid|wrong|broken|error)"),
    "reference_changed": _p(r"(?:names|refers to|references|points (?:to|at)|mounts) another config\w*", r"another configmap", r"reference (?:was )?changed"),
    "dependency_down": _p(r"dependenc\w+ (?:is |are )?(?:down|unavailable|failing|unreachable)", r"external dependenc\w+", r"upstream (?:is )?(?:down|failing)", r"(?:failing|broken|unreachable) dependenc\w+"),
    "external_dependency": _p(r"external (?:dependency|service|system)", r"outside (?:of )?the cluster", r"third[- ]party"),
    "bad_image": _p(r"bad image", r"broken image", r"(?:wrong|missing|invalid|non-?existent) (?:image|tag)", r"image (?:does not|doesn't) exist", r"tag (?:does not|doesn't) exist", r"image (?:name|reference|tag)", r"typo"),
    "wrong_tag": _p(r"(?:wrong|missing|mistyped|non-?existent|invalid) (?:image )?tag", r"tag (?:does not|doesn't) exist", r"(?:wrong|invalid|mistyped) image (?:name|reference)", r"manifest unknown"),
    "rate_limit": _p(r"rate[- ]limit", r"too many requests", r"\b429\b"),
    "pull_secret_missing": _p(r"pull ?secret (?:is )?(?:absent|missing|gone|deleted)", r"(?:missing|absent|deleted)[^.;]{0,20}pull ?secret", r"secret is absent"),
    "pull_credentials_rejected": _p(r"credentials (?:are )?(?:rejected|expired|refused|invalid|wrong)", r"expired (?:image)?pull ?secret", r"authentication required", r"unauthori[sz]ed"),
    "registry_unreachable": _p(r"registry (?:is )?(?:down|unreachable|unavailable)", r"registry outage", r"network problem"),
    "architecture": _p(r"architecture", r"exec format", r"wrong platform", r"\barm64\b|\bamd64\b"),
    "insufficient_resources": _p(r"insufficient (?:cpu|memory|\w+)", r"no node has room", r"not enough (?:capacity|nodes|room)", r"capacity (?:is )?(?:exhausted|short)", r"cluster is full"),
    "taint": _p(r"\btaints?\b"),
    "cordoned": _p(r"cordoned", r"unschedulable node"),
    "affinity": _p(r"affinit\w+", r"node ?selector", r"topology"),
    "claim_unbound": _p(r"unbound", r"claim is (?:gone or )?unbound", r"(?:pvc|claim)s? (?:is |are )?pending", r"storage ?class (?:is )?(?:missing|wrong)"),
    "claim_missing": _p(r"claim (?:is )?(?:gone|missing|deleted|lost)", r"(?:missing|deleted|lost) (?:pvc|claim)"),
    "claim_holds_data": _p(r"(?:claim|volume|pvc|it) (?:still )?(?:holds|contains|has) (?:\w+ )?data", r"data (?:must|has to) be kept", r"\bdata loss\b", r"needed data"),
    "storage_backend_down": _p(r"storage backend (?:is )?(?:down|unavailable)", r"csi (?:driver )?(?:is )?down", r"provisioner (?:is )?down", r"backend down"),
    "volume_full": _p(r"(?:volume|disk|claim|pvc|storage) (?:is )?(?:full|almost full|filling)", r"about to be full", r"no space left", r"running out of (?:space|disk)"),
    "no_expansion": _p(r"(?:class|storage ?class)[^.;]{0,20}without expansion", r"(?:does not|doesn't|cannot) (?:allow|support) expansion", r"expansion (?:is )?not (?:allowed|supported)", r"without expansion"),
    "expandable": _p(r"allows expansion", r"supports expansion", r"allowVolumeExpansion"),
    "volume_zone": _p(r"(?:another|other|wrong|different) zone", r"zone (?:conflict|mismatch)"),
    "old_data": _p(r"old data (?:should|can|may|must)", r"unused (?:data|claims?)", r"orphan"),
    "disk_pressure": _p(r"DiskPressure", r"(?:images or logs|logs or images|unused images)", r"node disk", r"disk pressure"),
    "disk_by_pod": _p(r"disk filled by", r"emptydir of a database", r"filled by (?:a |one )?(?:pod|emptydir|database)"),
    "node_failure": _p(r"node (?:failure|fails|failed|is broken|is down|defect)", r"persistent node", r"(?:kernel|hardware) (?:defect|failure|problem)", r"NotReady", r"unhealthy node", r"node problem"),
    "short_interruption": _p(r"short (?:known )?interruption", r"kubelet restart", r"transient", r"brief", r"maintenance window", r"reboot in progress"),
    "investigation_only": _p(r"investigation under way", r"suspect node", r"under investigation"),
    "must_be_emptied": _p(r"must also be emptied", r"needs? to be (?:drained|emptied)", r"pods must (?:be )?move"),
    "pdb_at_limit": _p(r"minAvailable equals", r"budget (?:equals|allows no)", r"(?:drain|rollout|eviction)s? (?:is |are )?blocked", r"disruptionsAllowed"),
    "pods_healthy": _p(r"all pods (?:are )?healthy", r"pods (?:are )?healthy"),
    "pods_unhealthy": _p(r"pods (?:are )?(?:really )?unhealthy", r"unhealthy pods", r"pods (?:really )?(?:are )?failing"),
    "pdb_violated": _p(r"disruption budget would be violated", r"violate\w* (?:a |the )?(?:disruption budget|pdb)"),
    "hpa_at_max": _p(r"TooManyReplicas", r"at its (?:ceiling|max\w*)", r"maxReplicas", r"ceiling"),
    "honest_load": _p(r"honest (?:traffic|load)", r"real (?:load|traffic)", r"legitimate (?:clients|traffic|load)", r"genuine load"),
    "cpu_defect": _p(r"cpu burned by", r"busy loop", r"runaway", r"defect"),
    "metrics_missing": _p(r"metrics (?:are )?(?:missing|unavailable)", r"no metrics", r"metrics server"),
    "quota": _p(r"\bquota\b"),
    "pool_exhausted": _p(r"connection pool", r"too many (?:clients|connections)", r"max_connections", r"connections? (?:are )?exhausted", r"shared resource", r"exhausts"),
    "leaking_client": _p(r"leaking client", r"client (?:that )?leaks", r"one (?:client|workload) (?:holds|exhausts|takes)"),
    "hurts_others": _p(r"hurts? others", r"one workload exhausts", r"noisy neighbou?r", r"isolat\w+ a workload", r"exhausts a shared"),
    "more_replicas": _p(r"more replicas (?:are )?needed", r"under-?provisioned"),
    "stale_environment": _p(r"stale (?:env\w*|values|connections|credentials|secrets?)", r"hold stale", r"(?:secret|configmap|credentials?)s? (?:was |were |has been |have been )?(?:rotated|changed|updated)", r"read current (?:secrets|config)", r"after (?:a )?(?:secret|credential) rotation"),
    "credentials_rejected": _p(r"authentication fail\w*", r"password", r"credentials"),
    "crash_on_start": _p(r"crash\w* on start", r"crash ?loop\w* already", r"(?:pods|containers?) (?:already )?crash", r"cannot start", r"can't start", r"fails? to start"),
    "certificate_not_ready": _p(r"certificate[^.;]{0,40}not (?:ready|issued|renewed)", r"is not ready"),
    "certificate_in_configmap": _p(r"certificate[^.;]{0,30}in an? config ?map", r"config ?map[^.;]{0,20}certificate"),
    "certificate_expired": _p(r"expired? certificate", r"certificate (?:has |is |about to )?expir\w+"),
    "cert_manager": _p(r"cert-manager", r"\bIssuer\b", r"\bCertificate (?:resource|object)"),
    "network_policy": _p(r"network ?polic\w+", r"deny[- ]all"),
    "mesh_policy": _p(r"authorization ?polic\w+", r"service mesh", r"\bistio\b"),
    "selector_mismatch": _p(r"selector"),
    "probe": _p(r"\bprobes?\b"),
    "wrong_probe": _p(r"(?:wrong|too (?:strict|short|tight|aggressive)|misconfigured) probe", r"probe (?:is )?(?:wrong|too)"),
    "deadline_too_short": _p(r"deadline (?:is )?too short", r"needs more time", r"activeDeadlineSeconds"),
    "job_failed": _p(r"job (?:has )?failed", r"backoff ?limit"),
    "suspended": _p(r"suspended"),
    "finalizer": _p(r"finali[sz]er", r"stuck (?:in )?terminating"),
    "webhook": _p(r"webhook"),
    "rbac": _p(r"\brbac\b", r"role ?binding", r"permission"),
    "fragmentation": _p(r"fragment\w+", r"free space[^.;]{0,20}database file", r"database file is free"),
    "member_down": _p(r"member is down", r"no leader", r"quorum"),
    "operator_failed": _p(r"\bCSV\b", r"bundle unpack", r"operator", r"subscription"),
    "scaled_to_zero": _p(r"scaled to (?:0|zero)", r"zero replicas"),
    "stateful": _p(r"statefulsets?", r"stateful"),
    "gitops": _p(r"gitops", r"argo ?cd", r"\bflux\b"),
    "helm": _p(r"\bhelm\b"),
    "production": _p(r"\bproduction\b", r"\bprod\b"),
    "staging": _p(r"\bstaging\b"),
    "development": _p(r"\bdevelopment\b", r"\bdev\b", r"non-?production"),
    "risk_low": _p(r"risk[_ ]tolerance ?(?:=|is|:) ?low", r"low risk tolerance"),
    "risk_high": _p(r"risk[_ ]tolerance ?(?:=|is|:) ?high", r"high risk tolerance"),
    "risk_medium": _p(r"risk[_ ]tolerance ?(?:=|is|:) ?medium"),
    "imperative": _p(r"imperatively managed"),
    "deleted_object": _p(r"accidentally deleted", r"was deleted", r"deleted (?:configmap|secret)"),
    "missing_key": _p(r"missing key", r"key (?:is )?missing"),
    "missing_reference": _p(r"(?:configmap|secret) (?:is )?(?:missing|absent|deleted|gone)", r"missing (?:configmap|secret)"),
    "cpu_throttled": _p(r"cpu throttl\w*", r"cpu limit"),
    "volume_attached_elsewhere": _p(r"multi-?attach", r"attached (?:elsewhere|to another)"),
    "gitops_sync": _p(r"out of sync", r"sync fail\w*", r"drift"),
}  # fmt: skip
QUALIFIERS: Mapping[str, re.Pattern[str]] = {
    "intentional": _p(r"on purpose", r"intended", r"intentional", r"deliberate", r"planned", r"by design"),
    "other_reason": _p(r"(?:another|other|different) (?:\w+ )?(?:reason|cause)s?", r"something else"),
}
"""What narrows a clause so far that only a statement of its own can make it hold."""
NEGATION_REACH = 24  # characters
NEGATION = re.compile(r"\b(?:not|no|never|without|isn't|aren't|doesn't|unless|nor)\b", re.IGNORECASE)
CLAUSE = re.compile(r"[;.]\s+|[;.]$|,\s*(?:or|and)?\s+|\s+(?:or|and)\s+|:\s+|\s+\(|\)\s*")
NEGATIVE_NAMES = frozenset({"no_expansion", "volatile_state", "metrics_missing", "claim_unbound", "member_down", "every_revision", "imperative", "missing_reference"})  # fmt: skip


class ClauseTruth(enum.Enum):
    """Whether a clause holds for an incident."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a sentence, with what it speaks of. `negated` when it says that something is not so."""

    text: str
    concepts: frozenset[str]
    negated: bool


def clauses(text: str) -> list[Clause]:
    """The clauses of a text that speak of a known concept."""
    found = []
    for part in CLAUSE.split(text):
        if not part or not part.strip():
            continue
        concepts = frozenset(name for name, pattern in CONCEPTS.items() if pattern.search(part))
        if concepts:
            concepts |= {name for name, pattern in QUALIFIERS.items() if pattern.search(part)}
            found.append(Clause(part.strip(), concepts, _negated(part, concepts)))
    return found


def _negated(part: str, concepts: frozenset[str]) -> bool:
    """Whether a negation stands shortly before everything that the part speaks of."""
    if concepts & NEGATIVE_NAMES:
        return False
    starts = [m.start() for name in concepts if name in CONCEPTS and (m := CONCEPTS[name].search(part))]
    return all(NEGATION.search(part[max(0, start - NEGATION_REACH) : start]) for start in starts)


def judge(
    clause: Clause, traits: Iterable[str], denied: Iterable[str], *, strictly: bool = False
) -> ClauseTruth:
    """Whether the clause holds: something of it must hold and nothing be denied; strictly, all of it must hold."""
    held, not_held = set(traits), set(denied)
    known = clause.concepts & (held | not_held)
    if not known:
        return ClauseTruth.UNKNOWN
    enough = (
        clause.concepts <= held
        if strictly
        else bool(clause.concepts & held) and not clause.concepts & (QUALIFIERS.keys() - held)
    )
    holds = enough and not clause.concepts & not_held
    fails = bool(clause.concepts & not_held) and not clause.concepts & held
    if not holds and not fails:
        return ClauseTruth.UNKNOWN
    return ClauseTruth.HOLDS if holds is not clause.negated else ClauseTruth.FAILS

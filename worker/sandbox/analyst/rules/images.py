"""Images that cannot be pulled: credentials, tag, rate limit, network, platform."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import containers_changed, last_change
from worker.sandbox.analyst.shapes import ContainerState, container_named, containers_of, pod_spec

NO_SECRET = re.compile(r"Unable to retrieve some image pull secrets \(([^)]+)\)")
UNTRUSTED = re.compile(r"x509|failed to verify certificate|certificate (?:signed|has expired)", re.IGNORECASE)
RATE = re.compile(r"toomanyrequests|rate limit|\b429\b|too many requests", re.IGNORECASE)
PLATFORM = re.compile(
    r"no match(?:ing manifest)? for platform|no matching manifest for|does not match the (?:specified|expected) platform",
    re.IGNORECASE,
)
INVALID = re.compile(
    r"InvalidImageName|invalid reference format|couldn't parse image|must be lowercase", re.IGNORECASE
)
DISK = re.compile(r"no space left on device", re.IGNORECASE)
NETWORK = re.compile(
    r"no such host|i/o timeout|connection refused|connection reset|TLS handshake timeout|context deadline exceeded|network is unreachable|no route to host|server misbehaving|dial tcp|\b50[234]\b",
    re.IGNORECASE,
)
AUTH = re.compile(
    r"unauthori[sz]ed|authentication required|no basic auth|\b401\b|\b403\b|forbidden|access denied|pull access denied|insufficient_scope|denied:|authorization failed|invalid username|token",
    re.IGNORECASE,
)
AMBIGUOUS = re.compile(
    r"repository does not exist or may require|may not exist or may require|pull access denied", re.IGNORECASE
)
ABSENT = re.compile(
    r"not ?found|manifest unknown|no such manifest|name unknown|does not exist|unknown blob|manifest for .* not|\b404\b",
    re.IGNORECASE,
)
NEVER = re.compile(r"ErrImageNeverPull|is not present with pull policy of Never", re.IGNORECASE)
PULL = re.compile(
    r"Failed to pull image \"([^\"]+)\"|Back-off pulling image \"([^\"]+)\"|Error: (?:ErrImagePull|ImagePullBackOff)"
)
PLAIN: tuple[tuple[re.Pattern[str], str, float, str, tuple[RemedyKind, ...]], ...] = (
    (RATE, "The registry limits the rate of pulls", 0.8, "rate_limit", ()),
    (PLATFORM, "The image is not built for the architecture of the node", 0.84, "architecture", ()),
    (NEVER, "imagePullPolicy Never forbids pulling, and the image is not on the node", 0.84, "bad_image", (RemedyKind.FIX_IMAGE,)),
    (UNTRUSTED, "The node does not accept the certificate of the registry", 0.8, "registry_unreachable", ()),
    (DISK, "The disk of the node is full", 0.72, "disk_pressure", (RemedyKind.CLEAN_NODE,)),
)  # fmt: skip
SYMPTOMS = ("ImagePullBackOff", "ErrImagePull")
DENIED = frozenset({"oom", "config_content", "dependency_down", "insufficient_resources"})


def image_finding(
    case: Case, pod: Manifest, state: ContainerState, workload: ObjectRef | None
) -> Finding | None:
    """Why the image of a container cannot be pulled."""
    namespace, name = str(dig(pod, "metadata", "namespace") or ""), str(dig(pod, "metadata", "name") or "")
    target = workload or make_ref("Pod", name, namespace)
    image = str(container_named(pod_spec(pod), state.name).get("image") or "")
    events = case.facts.events_of(make_ref("Pod", name, namespace))
    texts = [
        state.waiting_message,
        *(e.message for e in reversed(events) if e.type == "Warning" or PULL.search(e.message)),
    ]
    if not _explained(texts) and not events:
        case.facts.ask_events(namespace)
    secrets = [str(as_dict(s).get("name")) for s in as_list(pod_spec(pod).get("imagePullSecrets"))]
    return judge(case, target, image, state.waiting, texts, secrets)


def from_events(case: Case, workload: ObjectRef, manifest: Manifest, pods: Iterable[str]) -> Finding | None:
    """The same for pods that are gone: only their events tell."""
    names = set(pods)
    texts = [
        e.message
        for e in reversed(case.facts.events)
        if e.namespace == workload.namespace and e.name in names and PULL.search(e.message)
    ]
    if not texts:
        return None
    spec = pod_spec(manifest)
    match = next((m for t in texts if (m := PULL.search(t)) and (m[1] or m[2])), None)
    image = (match[1] or match[2]) if match else str(next((c.get("image") for c in containers_of(spec)), ""))
    secrets = [str(as_dict(s).get("name")) for s in as_list(spec.get("imagePullSecrets"))]
    return judge(case, workload, image, "ImagePullBackOff", texts, secrets)


def _explained(texts: list[str]) -> bool:
    text = " ".join(texts)
    return any(
        p.search(text)
        for p in (NO_SECRET, RATE, PLATFORM, INVALID, UNTRUSTED, NETWORK, AUTH, ABSENT, NEVER, DISK)
    )


def judge(
    case: Case, target: ObjectRef, image: str, waiting: str, texts: list[str], secrets: list[str]
) -> Finding:
    """The sub-cause that the messages show. `texts` are newest first."""
    text = " ".join(dict.fromkeys(texts))
    said = short(max(texts, key=len, default=""), 320)
    told = f"the image {image} of {target} cannot be pulled ({waiting}): {said}"
    missing = NO_SECRET.search(text)
    if missing:
        return _pull_secret_missing(target, image, missing[1].split(",")[0].strip(), told)
    if INVALID.search(text) or waiting == "InvalidImageName":
        return _wrong_image(case, target, image, f"{told}. The image name is not valid")
    for pattern, why, certainty, trait, remedies in PLAIN:
        if pattern.search(text):
            return _plain(target, f"{told}. {why}", certainty, {trait}, remedies)
    return _by_access(case, target, image, text, secrets, told)


def _by_access(
    case: Case, target: ObjectRef, image: str, text: str, secrets: list[str], told: str
) -> Finding:
    changed = containers_changed(last_change(case.facts, target), ".image")
    if (
        ABSENT.search(text)
        and not (AUTH.search(text) and not AMBIGUOUS.search(text))
        and not AMBIGUOUS.search(text)
    ):
        return _wrong_image(case, target, image, f"{told}. The registry does not have this image or tag")
    if AUTH.search(text):
        if AMBIGUOUS.search(text) and (changed or not secrets):
            return _wrong_image(
                case,
                target,
                image,
                f"{told}. The registry does not know this repository, or wants credentials that the pod has not got",
            )
        return _rejected(target, secrets, told)
    if NETWORK.search(text):
        return _plain(
            target,
            f"{told}. The registry cannot be reached from the node",
            0.74,
            {"registry_unreachable"},
            (),
        )
    if changed:
        return _wrong_image(
            case, target, image, f"{told}. The image was changed from {changed[0]} to {changed[1]}"
        )
    return _plain(
        target,
        f"{told}. No message tells why; the image name or tag is the first suspect",
        0.62,
        {"bad_image"},
        (RemedyKind.FIX_IMAGE,),
    )


def _pull_secret_missing(target: ObjectRef, image: str, name: str, told: str) -> Finding:
    secret = make_ref("Secret", name, target.namespace)
    why = f"the imagePullSecret {secret} does not exist (the kubelet is unable to retrieve it), so the registry asks for authentication"
    return Finding(
        family="pull-secret",
        summary=f"{sentence(told)}. {sentence(why)}.",
        target=secret,
        certainty=0.92,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_PULL_SECRET,),
        factors=(told, why),
        workload=target,
        traits=frozenset({"pull_secret_missing"}),
        denied=DENIED | {"wrong_tag", "bad_image", "rate_limit", "template_changed"},
        hints={"secret": name, "image": image},
    )


def _rejected(target: ObjectRef, secrets: list[str], told: str) -> Finding:
    """Credentials that the registry refuses: those of the pull secret, or none at all."""
    secret = make_ref("Secret", secrets[0], target.namespace) if secrets else None
    why = (
        f"the registry rejects the credentials in {secret}"
        if secret
        else f"the pods of {target} name no imagePullSecret"
    )
    return Finding(
        family="pull-secret",
        summary=f"{sentence(told)}. {sentence(why)}.",
        target=secret or target,
        certainty=0.84 if secret else 0.76,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_PULL_SECRET,),
        factors=(told, why),
        workload=target,
        traits=frozenset({"pull_credentials_rejected"}),
        denied=DENIED | {"wrong_tag", "bad_image", "rate_limit"},
        hints={"secret": secrets[0] if secrets else ""},
    )


def _wrong_image(case: Case, target: ObjectRef, image: str, told: str) -> Finding:
    change = last_change(case.facts, target)
    earlier = containers_changed(change, ".image")
    finding = Finding(
        family="image",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=0.88,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_IMAGE, RemedyKind.ROLLBACK)
        if not earlier
        else (RemedyKind.ROLLBACK, RemedyKind.FIX_IMAGE),
        factors=(told,),
        workload=target,
        traits=frozenset({"wrong_tag", "bad_image"}),
        denied=DENIED | {"pull_secret_missing", "pull_credentials_rejected", "rate_limit"},
        hints={"image": earlier[0] if earlier else "", "bad_image": image},
    )
    return with_change(finding, change, only=("image",))


def _plain(
    target: ObjectRef, told: str, certainty: float, traits: set[str], remedies: tuple[RemedyKind, ...]
) -> Finding:
    return Finding(
        family="image",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=certainty,
        symptoms=SYMPTOMS,
        remedies=remedies,
        factors=(told,),
        workload=target,
        traits=frozenset(traits),
        denied=DENIED | ({"pull_secret_missing", "pull_credentials_rejected"}),
    )

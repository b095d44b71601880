"""Text in the evidence that steers: it speaks of what to do or to decide, not of what is.

Software reports states. Whoever wants to move the analysis must speak of something that software does not: the incident
itself, people and their consent, guilt, certainty, what is settled, a remedy, the reader; or must tell somebody what to
do. Each of these is a small vocabulary (`SUBJECTS`, `MOOD`, `ORDER`), and only two of them together count: no single word does,
and how the sentence is put does not matter. Text that these checks cannot read (another script or language) cannot be
cleared by them, so it counts too.

A hit costs autonomy, a person approves, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from worker.domain.untrusted.evidence import EXTERNAL, Evidence, one_line
from worker.domain.untrusted.injection import CATALOG_SOURCES, texts_of, without_history
from worker.domain.untrusted.readings import readings

SHOWN_CHARS = 200
UNIT_CHARS, OVERLAP_CHARS, LEAST_CHARS = 400, 100, 10
UNIT_END = re.compile(r'[\n"{}|]')
"""Between what different writers said: lines, strings of a document, cells of a table."""
SENTENCE_END = re.compile(r"[.!?:;]\s+")
SENDER = "sender"
FLAGS = re.IGNORECASE | re.VERBOSE
ALONE, END = r"(?<![\w/:@.-])", r"(?![\w/@-]|[.:]\w)"
"""A word by itself, no part of a name, a path or an address."""
MIN_WORDS, MIN_FOREIGN_WORDS, MIN_LETTERS = 4, 2, 4
FOREIGN_SHARE = 0.25

SUBJECTS = {
    "incident": r"""(this|the|that|these|your)\s+(\w+\s+)?(incident|alert|alarm|outage|problem|case|situation)s?
        | incidents?(?!\s*[=:_]) | (alert|alarm)s?\s+(is|are|was|can|for) | ignore\s+alerts?""",
    "approval": r"""(?<!not\s)(?<!to\s)(approv(e|ed|al|als|er)|pre-?approved|authori[sz](e|ed|ation))(?!\s+by\s+kube)
        | sign(ed|s)?[- ]?off | waived? | waives | consent\w* | green[- ]?light | go-?ahead | four[- ]eyes | exempt\w*
        | permission\s+(to|for) | cleared\s+(for|to)""",
    "people": r"""human | person | people | some(one|body) | any(one|body) | nobody | colleagues? | sre | on-?call | owner | (duty|line|product|incident|engineering)\s+manager | lead | boss | cto | ceo | cio | vp | ciso | board | cab | ops | reviewer | engineer(ing|s)?
        | compliance | admins? | administrators? | \w+[- ]team | team""",
    "cause": r"""root\s+cause | culprit | blame[sd]? | to\s+blame | at\s+fault | fault\s+domain | guilty | victim | bystander | diagnos\w+
        | triag\w+ | investigator | verdict | conclusion | conclude | attribute\s+(the|this|it|all)""",
    "judgement": r"severity | confiden(t|ce) | certain(ty)? | (?<!make\s)(?<!be\s)sure | doubts? | (low|no|high)[- ]risk | estimated\s+risk",
    "settled": r"""resolved | solved | closed | stale | (is|was|are)\s+over | obsolete | (is|are|was|as|were)\s+expected | intended | intentional | on\s+purpose | deliberate\w*
        | planned | recovered | self-?heal\w* | restored | back\s+to\s+normal | healthy\s+again | load\s+test | drill | chaos | game\s+day
        | maintenance""",
    "dismissal": r"""false\s+(positive|alarm) | benign | harmless | disregard | ignore | noise | safe\s+to
        | no\s+(further\s+)?(action|intervention|remediation|work) | nothing\s+(is|was|to|needs)""",
    "remedy": r"""remed(y|ies|iat\w+) | (run|play|hand)-?book | fix | cure | countermeasure | mitigat\w+ | change\s+(request|ticket)
        | this\s+change | chg\d+ | roll\s?backs? | execution | auto-?execut\w* | unattended | autonom\w+ | on\s+its\s+own | by\s+itself
        | straight\s+through | without\s+(asking|approval|confirmation|review|supervision) | ask(ing)?\s+(for|any)""",
    "reader": r"""ai | llm | \w*gpt | chat\s?bot | language\s+model | assistant | analyst | guardrails? | jailbreak | instructions? | prompt
        | in\s+character | tool\s+(output|result)s? | answer | evidence | (the|all|your|any|these)\s+rules""",
    "access": r"""contents?\s+of\s+(the\s+)?secrets? | kubectl\s+(exec|get\s+secrets?|cp|delete|apply|scale|rollout|drain) | kubeconfig
        | every\s+namespace | all\s+namespaces""",
}
SUBJECT = {name: re.compile(f"{ALONE}(?:{words}){END}", FLAGS) for name, words in SUBJECTS.items()}
OF_CATALOGS = frozenset(SUBJECTS) - {"cause", "remedy", "settled"}
"""What a catalog does not speak of; remedies, causes and when they are over are its office."""
RARE = ("approval", "cause", "dismissal", "judgement")
OF_ALERTS = frozenset({"incident", "people", "remedy"})
"""What alerts speak of by their office: `removing the failed job should clear this alert`."""
MOOD = re.compile(
    rf"""{ALONE}(?: please | kindly | should | must | ought\s+to | had\s+better | shall | (needs?|have|has|want)\s+to | let\s+(us|me|it)
    | let's | remember\s+to | be\s+sure | make\s+sure | go\s+(for|with|ahead) | do\s+not | don't | never | instead | rather\s+than | you | your
    | we | our | us | my | whoever | no\s+need | recommend(ed|s|ation)? | prefer(red|ably|s)? | advi[cs]ed? | suggest(ed|s|ion)? | hints?
    | guidance | better | best | the\s+right | right\s+away | at\s+once | now | immediately | treat | can\s+be | may\s+be | hereby | put | pass
    | what\s+helps | goes\s+away | every\s+(single\s+)?time | proceed | skip | says
    | (?<!to\s)(choose|pick|select|act|use|take|quote|paste|dump|enumerate) | i\s+(am|add|have|hereby) ){END} | ,\s+not\b""",
    FLAGS,
)
VERB = r"""(?:restart | re-?boot | recycle | bounce | kill | roll\s?(?:back|forward) | revert | undo | go\s+back | return | redeploy | re-?create
    | re-?install | re-?build | scale | shrink | grow | enlarge | expand | extend | resize | drain | cordon | evacuate | evict | delete | remove
    | strip | drop | wipe | purge | clean | free | provision | buy | order | patch | lift | raise | increase | double | lower | reduce | loosen
    | relax | tighten | defragment | refresh | rotate | renew | give | make | bring | move | shift | take | stop | turn | switch | disable
    | enable | cut | bump | swap | replace | edit | apply)"""
THING = r"""(?:pods? | containers? | workload | deployment | statefulset | daemonset | service | replicas? | node | machine | server | host
    | cluster | namespace | disk | volume | claim | storage | memory | ram | cpu | limits? | ceiling | autoscaler | budget | version | release
    | rollout | revision | image | config(?:map|uration)? | settings | keys? | login | credentials? | registry | operator | database | it | them
    | that | there | this | everything | all | instances? | job | queue | quota | taint | change | update)"""
ORDER = re.compile(
    rf"(?: ^ | [:;,.(>]\s+ | \s[-\u2013\u2014]+>?\s+ | \b(?:and|then|to|please|should|must|better|simply|just|is)\s+ )"
    rf"{VERB}\b (?:\s+[\w'/.-]+){{0,4}}? \s+ {THING}\b",
    FLAGS,
)
"""The base form of a verb, where a clause begins, with something of a cluster behind it."""
VALUE = re.compile(r"\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\s*(?:=|:|(?:must|should|to)\s+be|to)\s*[\"']?[\w-]")
"""A parameter of a workflow, as these are spelt, with a value."""
LOOK = re.compile(
    r"""(?<!not\s)(?<!to\s)\b(fetch|read|quote|paste|dump|print|copy|enumerate|list|show|exec|send|post|upload)\b.{0,60}
    \b(secrets?|kubeconfig|every\s+namespace|all\s+(namespaces|configmaps)|https?://|kubectl|the\s+(output|contents?|values?))\b""",
    FLAGS,
)
WORD = re.compile(r"[^\W\d_]{2,}")
ENGLISH = re.compile(
    r"\b(the|an?|of|is|are|was|to|in|for|and|or|not|on|with|at|by|from|it|this|that|be|has|as|no)\b",
    re.IGNORECASE,
)
FOREIGN = re.compile(
    r"""\b(der|das|und|ist|nicht|bitte|wird|wurde|mit|f\u00fcr|auf|dem|den|eine[nmrs]?|alle[ns]?|jetzt|oder|zu|le|la|les|des|du|est|une|dans|pour
    |que|qui|sur|avec|pas|ce|cette|tout|rien|merci|nous|vous|el|los|las|una|por|para|con|sin|del|y|es|se|todo|todos|nadie|esta|este|il|lo
    |gli|di|che|non|per|sono|della|um|uma|n\u00e3o|em|ao|voc\u00ea|favor|de|het|een|niet|van|och|inte|att|\u00e4r|nie|jest|na|bir|ve|bu|i\u00e7in)\b""",
    FLAGS,
)
"""Words without which no sentence can be made in the larger languages of the Latin script."""
OTHER_SCRIPT = re.compile(
    "[\u0370-\u1fff\u2c80-\u2dff\u2e80-\ud7ff\uf900-\ufaff\ufe70-\ufefc\uff66-\uffdc\U00010000-\U0001efff\U00020000-\U0003ffff]{2,}"
)


def steering(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """What steers, by the id of the evidence it stands in. Only items with a hit are in the result."""
    found = (
        (item.id, tuple(dict.fromkeys(_of_item(item))))
        for item in evidence
        if item.ok or item.source.startswith(EXTERNAL)
    )
    return {id_: lines for id_, lines in found if lines}


def _of_item(item: Evidence) -> Iterator[str]:
    catalog = item.source in CATALOG_SOURCES
    for text in texts_of(item) if catalog else (without_history(item),):
        yield from steering_lines(text, of_catalog=catalog, of_sender=item.source == SENDER)


def steering_lines(text: str, *, of_catalog: bool = False, of_sender: bool = False) -> list[str]:
    """The parts of a text that steer, each at most 200 characters. A catalog and a sender may say more than a log."""
    return list(
        dict.fromkeys(
            one_line(unit, SHOWN_CHARS)
            for reading in readings(text)
            for unit in _units(reading)
            if _unreadable(unit) or _steers(unit, of_catalog=of_catalog, of_sender=of_sender)
        )
    )


def _units(text: str) -> Iterator[str]:
    for unit in UNIT_END.split(text):
        for start in range(0, max(1, len(unit) - OVERLAP_CHARS), UNIT_CHARS - OVERLAP_CHARS):
            if len(part := unit[start : start + UNIT_CHARS]) >= LEAST_CHARS:
                yield part


def _steers(unit: str, *, of_catalog: bool, of_sender: bool) -> bool:
    subjects = {name for name, words in SUBJECT.items() if words.search(unit)}
    mood = MOOD.search(unit) is not None
    if of_catalog:
        telling = subjects & OF_CATALOGS
        return len(telling) > 1 or (bool(telling) and (mood or _insists(unit)))
    if (len(subjects) > 1 or _insists(unit)) and len(WORD.findall(unit)) >= MIN_WORDS:
        return True
    if ORDER.search(unit) and (mood or subjects):
        return True
    if mood and VALUE.search(unit):
        return True
    telling = subjects - OF_ALERTS if of_sender else subjects
    return (mood and bool(telling)) or LOOK.search(unit) is not None


def _insists(unit: str) -> bool:
    """Whether a subject that software hardly ever speaks of is spoken of in two ways."""
    return any(len({match[0].lower() for match in SUBJECT[name].finditer(unit)}) > 1 for name in RARE)


def _unreadable(unit: str) -> bool:
    if not unit.isascii() and len("".join(OTHER_SCRIPT.findall(unit))) >= MIN_LETTERS:
        return True
    return any(_foreign(sentence) for sentence in SENTENCE_END.split(unit))


def _foreign(sentence: str) -> bool:
    found = [word.lower() for word in FOREIGN.findall(sentence)]
    return (
        len(set(found)) >= MIN_FOREIGN_WORDS
        and len(found) > len(ENGLISH.findall(sentence))
        and len(found) >= FOREIGN_SHARE * len(WORD.findall(sentence))
    )

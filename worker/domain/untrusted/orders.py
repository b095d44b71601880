r"""How texts speak that were planted for a model to read: families of phrases, as patterns (`ORDERS`).

What such a text must contain to work on a model: an address to it, an order about its answer, a claim of approval, the
words that only this worker and its model use, or their message markup. Wide on purpose, for a hit costs autonomy and
never evidence; but what software writes every day (psql's "You are now connected", "message: agent disconnected",
"failed to execute workflow task") is left alone where it can be told apart.
"""

from __future__ import annotations

import re

OVERRIDE = r"""
      \b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(previous|prior|above|earlier|other|all|your)\b.{0,40}
        \b(instructions?|prompts?|rules?|evidence|directives?|guidance)\b
    | \b(ignore|disregard|forget)\s+(everything|(the\s+|all\s+)?(other\s+)?(log\s+lines?|logs)\b|the\s+errors?\s+(above|below)|what\s+you)
    | \b(new|updated|real|actual)\s+(system\s+)?(instructions?|prompt|directive)s?\b\s*[:=]
    | \b(do\s+not|don't|never)\s+trust\b.{0,30}\b(evidence|logs?|metrics|events)\b
    | \b(only|just)\s+this\s+(line|message|log|note)\b.{0,20}\b(real|true|trust\w*|valid)\b
    | \bend\s+of\s+(the\s+)?(evidence|prompt)\b | \bevidence\s+ends\b
"""
ADDRESS = r"""
      \byou\s+are\s+now\s+(an?|the|in|no|acting|free|allowed|authori[sz]ed)\b | \byou\s+must\s+now\b
    | \bact\s+as\s+(an?|the)\s+(\w+\s+)?(owner|admin\w*|operator|executor|system|assistant|expert|analyst|engineer|lead|agent)\b
    | \b(pretend\s+to\s+be|from\s+now\s+on\s+you\s+(are|will|must|report|answer|choose|act))\b
    | \b(attention|note|message|notice|instructions?|directive)s?[\s,:]+(to|for)\s+(the\s+|any\s+|all\s+)?
        (ai\b|llm|assistants?\b|agents?\b|language\s+models?|automation\s+agents?|analy[sz](er|ing|t))
    | \b(attention|notice|instructions?|directive)s?[\s,:]+(the\s+)?(ai|llm|assistants?|language\s+models?)\b
    | \b(dear|kindly,?)\s+(ai\b|llm|assistant|agent|reader|investigator|analy[sz](er|t))
    | \bto\s+(the\s+(investigator|analyst|reader)|whom\s+it\s+may\s+concern)\b | \b(investigator|analyst)\s*[:,]\s*(stop|you|the|please|choose|select)\b
    | \bas\s+an?\s+(ai\b|llm|language\s+model) | \b(ai|llm)\s+(agents?|assistants?|analy[sz]ers?)\s*[:,]\s*(the|you|please|choose|select|ignore)\b
    | \b(hey|hi|dear|hello)\s+(ai|llm|gpt|chatgpt|claude|copilot)\b
    | \bwho(so)?ever\s+(reads|sees|processes|analy[sz]es)\b | \bif\s+you\s+are\s+(an?\s+)?(ai|llm|automat\w+|bot|language\s+model)\b
    | \bwhen(ever)?\s+you\s+(analy[sz]e|investigate|report|answer)\b
    | \b(your|the)\s+(only|sole|real|actual|new)\s+(task|goal|role|job)\s+(is|now)\b
    | \b(assistants?|models?|agents?|bots?|analysts?|automation)\s+(must|should|shall|needs?\s+to|has\s+to)\s+(answer|conclude|recommend)\b
"""
ANSWER = r"""
      \b(required|mandatory|approved)\s+(action|remediation|workflow|directive)s?\b\s*[:=]
    | \balways\s+(select|choose|pick|use|run|recommend)\b.{0,30}\b(workflow|remediation|[a-z0-9-]+-v\d+)\b
    | \b(report|set|return|use|state|give)\b.{0,20}(?<!-)\bconfidence\b(?!\s+(interval|level|threshold))
        .{0,12}\b(0?\.\d+|1(\.0+)?|\d{2,3}\s?%)
    | \b\d{2,3}\s?%\s+(confident|sure|certain)\b | \bbe\s+(very\s+)?(confident|certain)\b | \bconfidence\s+(should|must)\s+be\b
    | \b(final|your)\s+answer\s+(is|must|should|:)|\b(answer|reply)\s+with\b(?!\s+(status|code|error|\d)) | \b(reply|say|conclude|report)\s+that\b
    | \bdo\s+not\s+(investigate|re-?check|look\s+(at|into)|escalate\s+this|call\s+any\s+tool)\b
    | \b(stop|end|finish|abort)\s+(your|the|this)\s+(investigation|analysis)\s+(here|now|and)\b | \bno\s+(further|more)\s+(diagnosis|investigation)\b
    | \bcorrect\s+(root\s+cause|workflow|answer|selected_workflow)\b
    | \b(mark|close|report|treat|classify)\s+((this|the|that|it)\s+)?(incident|alert|case|issue|problem|signal)?\b.{0,20}
        \bas\s+(resolved|benign|harmless|(a\s+)?false\s+(positive|alarm)|no\s+review|not[\s_]actionable|known\s+issue)\b
    | \b(the\s+)?only\s+(safe|correct|right)\s+(remediation|fix|action|workflow|answer|choice)\b
    | \b(choosing|selecting|running|doing)\s+any(thing)?\s+(except|but|other\s+than|else)\b
    | \b(please|kindly|should)\s+(choose|pick|go\s+with)\b | \bnothing\s+to\s+see\s+here\b
    | \b(reveal|print|show|repeat|copy|output|leak)\b.{0,20}\b(your|system)\s+(prompt|instructions?)\b
"""
APPROVAL = r"""
      \b(human|manual)[\s_-]*(review|approval)\b.{0,40}\b(not\s+(required|needed|necessary)|false|skip|complete\s+and|unnecessary|waived)
    | \bhuman[\s_-]*review\b\W{0,3}\s*(is\s+)?(complete|false|done|no)\b
    | \b(skip|omit|waive|no\s+need\s+for|do\s+not\s+(request|require|ask))\b.{0,40}\b(approval|investigation|(?<!merge\s)review(?!\s+(app|job)))\b
    | \b(no\s+need\s+for|do\s+not\s+(request|ask))\b.{0,40}\b(validation|verification|checks?)\b
    | \bdo\s+not\s+ask\s+(an?y?\s+|the\s+)?(human|person|operator|anyone)\b | \bwithout\s+asking\b
    | \b(no|without)\s+(human\s+|manual\s+|further\s+)?approval\s+(is\s+)?(required|needed|necessary)\b
    | \bapproval\s+(is\s+)?(not\s+(required|needed|necessary)|unnecessary)\b | \bapproval\s+(is|was|has\s+been)\s+(granted|given|waived)\b
    | \b(incident|issue|problem|alert|remediation)\b.{0,40}\bbeen\s+(triaged|approved|diagnosed)\b
    | \b(change|ticket|action)\b.{0,40}\bbeen\s+approved\b.{0,40}\b(by|for)\b
    | \balready\s+(been\s+)?(triaged|diagnosed)\b
    | \bpre-?(authori[sz]ed|approved)\b.{0,30}\b(by|for)\b | \bapproved\s+by\s+(the\s+)?(\w+\s+)?(team|lead|manager|on-?call|board|owners?)\b
    | \b(sre|on-?call|operators?|platform|owners?)\b.{0,20}\b(has|have)\s+decided\b | \b(sre|on-?call|operator)\s+decision\b
    | \b(?<!-)auto-?approve,\s | \bskip\s+(the\s+)?(human|person|operator)\b | \bno\s+review\s+(is\s+)?needed\b
    | \bproceed\s+(automatically|autonomously|without\s+(review|a\s+human|asking))\b
"""
VOCABULARY = r"""
      \b(selected_?workflow|recommended_?workflow|investigation_?outcome|root_cause_analysis|human_review_reason)\b
    | \b(problem_resolved|not_actionable|get_pod_logs|get_resource_context|list_available_actions|search_workflow_catalog)\b
    | \b(affectedResource|needs_human_review|approval\.required)\b | \bcall\s+(get|list)_[a-z]+
"""
"""What only this worker and its model say."""
MARKUP = r"""
      </?\s*data-[0-9a-f] | <\s*(system|assistant|instructions?)\s*>\s*\w | </\s*tool\s*>\s*<\s*user | </\s*system\s*>\s*<
    | <\|\s*(im_start|im_end|system|user|assistant|endoftext) | \[/?INST\]
    | ^\s*\#{2,}\s*(system|instruction)s?\s*:\s*\w+\s+\w+\s+\w+ | \#{2,}\s*system\s*:
    | (?<![\w-])(system|assistant)\s*:\s*(you\s+(are|must|answer|obey)|ignore|please\s+(choose|select|answer)|select\s+\w)\b
    | (^|[.!?>/*\#]\s*)(ai|llm|gpt|chatgpt|claude|copilot)\s*,\s | @(ai|llm|gpt|claude|assistant)\b
    | (//|\#|<!--|/\*)\s*(ai|llm|model|assistant)\s*:\s*(the|you|please|choose|select|prefer|ignore|pick)\b
"""
"""Message markup, and other words that do not begin where a word does."""
OTHER_LANGUAGES = r"""
      (ignorier|ignorez|ignora|ignoriere|oubliez|olvida|vergiss).{0,60}(anweisung|instruction|instruccion|istruzion|instru\u00e7)
    | (\u5ffd\u7565|\u7121\u8996|\u65e0\u89c6).{0,40}(\u6307\u4ee4|\u6307\u793a) | (\u6307\u4ee4|\u6307\u793a).{0,40}(\u5ffd\u7565|\u7121\u8996|\u65e0\u89c6)
    | \u0438\u0433\u043d\u043e\u0440\u0438\u0440.{0,60}(\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446|\u0443\u043a\u0430\u0437\u0430\u043d)
"""
FLAGS = re.IGNORECASE | re.VERBOSE | re.DOTALL | re.MULTILINE
ORDERS = (
    re.compile(rf"\b(?=\w)(?:{OVERRIDE}|{ADDRESS}|{ANSWER}|{APPROVAL}|{VOCABULARY})", FLAGS),
    re.compile(f"{MARKUP}|{OTHER_LANGUAGES}", FLAGS),
)
"""Two patterns: looked for only where a word begins, the larger one costs a fifth."""
CHOICES = re.compile(
    r"""
      (?<!failed\ to\ )(?<!unable\ to\ )(?<!\bnot\ )\b(select|choose|pick|use|run|execute|recommend|return)\b\s+(the\s+|this\s+|only\s+)?
        ([\w.-]+\s+){0,2}(workflow\b(?!\s+(step|task|run|execution|engine|template|id|worker|service|definition|")|=)|remediation\b(?!\s+(script|guide|playbook|for)))
    | \b(select|choose|pick|recommend|execute)\b\s+[a-z0-9]+(-[a-z0-9]+)*-v\d+\b
    """,
    FLAGS,
)
"""Advice on what to choose. A catalog gives it by its office, nobody else."""

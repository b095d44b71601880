"""Templates to text. Logs and labels are hostile: hidden characters are made visible, and all text is escaped.

HTML is escaped by Jinja, Markdown by `_markdown`; neither template marks anything as safe.
"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from worker.app import verdict_line
from worker.app.pages.incident import IncidentPage, axis
from worker.app.telling import lines
from worker.domain.untrusted.evidence import make_visible

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&@]|(?<=:)/|^[-+#=]|^\d+(?=[.)](?:\s|$))|(?<=\bwww)\.)")
"""What can begin a construct of CommonMark, an automatic link or, at the start of a line, a block."""
LONGEST_FENCE = 40


def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("worker.app.pages", "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["verdict_line"] = verdict_line
    made.filters |= {
        "md": _markdown,
        "fenced": _fenced,
        "money": _money,
        "axis": axis,
        "lines": lines,
        "moment": "{:%Y-%m-%d %H:%M:%S} UTC".format,
    }
    return made


def as_html(page: IncidentPage) -> str:
    """One self-contained document: no script, nothing is loaded from anywhere."""
    return environment().get_template("report.html").render(page=page)


def as_markdown(page: IncidentPage) -> str:
    """For a ticket or a chat (CommonMark with tables)."""
    text = environment().get_template("report.md").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _visible(value: Any) -> Any:
    return make_visible(value) if type(value) is str else value


def _markdown(value: Any) -> str:
    """The value on one line, with everything escaped that has a meaning in Markdown."""
    return SPECIAL.sub(_escaped, make_visible(" ".join(str(value).split())))


def _escaped(found: re.Match[str]) -> str:
    text = found.group()
    return f"{text[:-1]}&#{ord(text[-1])};" if text[-1].isdigit() else f"\\{text}"


def _fenced(value: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * min(max(3, longest + 1), LONGEST_FENCE)
    return f"{fence}\n{make_visible(value.replace('`' * LONGEST_FENCE, ''))}\n{fence}"


def _money(value: float | None) -> str | Markup:
    return "unknown" if value is None else f"${value:.4f}"

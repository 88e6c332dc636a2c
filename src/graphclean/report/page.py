"""The page: template, style and scripts in one file, with escaped data."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

import jinja2

from .escape import to_json
from .text import Words
from .theme import BLUE, CLASSES, ON_DARK, VERDICT_STYLES

SCRIPTS = (
    *("dom", "data", "marks", "detail", "gallery", "duplicates", "table"),
    *("map", "charts", "classes", "border", "theme", "main"),
)
"""The page's scripts in loading order; each may use those before it."""
REVIEW_SCRIPTS = ("review",)


def render_page(
    *, facts: dict[str, Any], table: str, words: Words, token: str | None = None, **shown: Any
) -> bytes:
    """The whole page; `table` is JSON already."""
    review = facts["mode"] == "review"
    style = _palette() + _read("style.css")
    names = [*SCRIPTS[:-1], *(REVIEW_SCRIPTS if review else ()), SCRIPTS[-1]]
    script = "(() => {\n'use strict';\n" + "\n".join(_read(f"{name}.js") for name in names) + "\n})();\n"
    looks = {
        "marks": {name: look.marker for name, look in VERDICT_STYLES.items()},
        "class_colors": len(CLASSES),
    }
    facts = {**facts, **looks}
    page = (
        _environment()
        .get_template("page.html")
        .render(
            style=style,
            script=script,
            policy=_policy(style, script, review=review),
            facts=facts,
            facts_json=to_json({**facts, "token": token}),
            table_json=table,
            words=words,
            review=review,
            **shown,
        )
    )
    # Lone surrogates, as in file names that are not UTF-8, become escapes that JSON can read.
    return page.encode("utf-8", "backslashreplace")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.1f} %"
    environment.filters["score"] = lambda value: "–" if value is None else f"{value:.3f}"
    return environment


def _read(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str, *, review: bool) -> str:
    """Only our own style and scripts; no connections, except to the review server itself."""
    rules = [
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "img-src data:" + (" 'self'" if review else ""),
        *(["connect-src 'self'"] if review else []),
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _palette() -> str:
    """The colors of verdicts and classes as CSS variables for light and dark themes; print is light."""
    light = {f"--{name}": look.color for name, look in VERDICT_STYLES.items()} | {"--accent": BLUE}
    light |= {f"--class-{place}": color for place, color in enumerate(CLASSES)}
    dark = {name: ON_DARK.get(color, color) for name, color in light.items()}

    def rules(colors: dict[str, str]) -> str:
        return "".join(f"{name}:{color};" for name, color in colors.items())

    return (
        f":root{{{rules(light)}}}\n@media screen{{:root[data-theme=dark]{{{rules(dark)}}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{rules(dark)}}}}}\n"
    )

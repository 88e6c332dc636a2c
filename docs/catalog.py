"""The overview of methods, generated from their registry when the site is built; new methods appear
automatically.

A page requests it with a comment on its own line: `<!-- overview: methods -->`.
"""

import re
from collections.abc import Callable
from typing import Any

from graphclean.bench.markdown import markdown_table
from graphclean.methods import OWN_METHODS, load_method

REQUEST = re.compile(r"^<!-- overview: (\w+) -->$", re.MULTILINE)
KINDS = {
    "baseline": ("Baselines", "What every other method must beat. They memorize wrong labels in the end."),
    "loss": (
        "Robust losses and corrections",
        "They change the loss, or the labels it sees; most cost little extra.",
    ),
    "selection": (
        "Sample selection",
        "Train on samples that are probably clean, and leave out the others.",
    ),
    "relabel": (
        "Relabeling",
        "Replace labels by confident predictions of the model or the neighbors.",
    ),
    "semi-supervised": (
        "Semi-supervised",
        "Treat samples with doubtful labels as unlabeled: expensive, and made for heavy noise.",
    ),
    "contrastive": (
        "Contrastive",
        "Learn features that need no labels as well, and clean the labels by neighbors in them.",
    ),
    "ood": ("OOD detection alone", "Train a network to detect OOD inputs; labels are not cleaned."),
}
"""Kind -> its heading, and a description of its methods."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs hook: a page with all requested parts inserted."""
    return REQUEST.sub(lambda match: MAKERS[match[1]](), markdown)


def methods_overview() -> str:
    """Every method of the package, by kind."""
    infos = [load_method(name).info for name in OWN_METHODS]
    parts = []
    for kind in [*KINDS, *sorted({str(info.kind) for info in infos} - set(KINDS))]:
        rows = [
            (
                f"`{info.name}`",
                f"{info.title}. {info.paper}".strip().rstrip(".") + ".",
                str(info.networks),
                f"{info.cost:g}",
                ", ".join(info.needs) or "–",
            )
            for info in infos
            if info.kind == kind
        ]
        heading, about = KINDS.get(kind, (kind, ""))
        if rows:
            table = markdown_table(("method", "what it is", "networks", "cost", "also needs"), rows)
            parts.append(f"### {heading}\n\n{about}\n\n{table}")
    return "\n\n".join(parts)


MAKERS: dict[str, Callable[[], str]] = {
    "methods": methods_overview,
}

"""The field's words, one for a thing: what must not come back into code, messages and the documentation."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = r"""
    \bhumps?\b | \bby[ _-]heart\b | \banew\b | \bvouch\w* | \bbeliefs?\b | \bbarred\b | \bunmix\w* |
    \bstrangers?\b | \blikeliest\b | \bloudest\b | \bleave[ _-]own[ _-]out\b
"""
BRITISH = r"""
    neighbour | labell(?:ed(?!by)|ing|er) | colour | centre | centring | behaviour | grey | judgement |
    (?:normal|standard|symmetr|summar|initial|maxim|minim|recogn)is(?:e|ing|ation) | optimis(?:e|ing|ation)
"""
SPOKEN = r"""
    \bbesides?\b | \bgo(?:es|ing)?[ ]on\b | \bmended\b | \bforetells?\b | \blikelier\b |
    \bwhat[ ]there[ ]is\b |
    \bby[ ](?:itself|themselves)\b | \bof[ ](?:its|their|your|our)[ ]own\b |
    \bof[ ]no[ ]class\b | \bnone[ ]of[ ]these\b | \boutlasts?\b | \bdrawn[ ]at[ ]random\b
"""
"""What readers and users saw once, and a native speaker would not write."""
REPORTED = r"\btold\b(?![ ]apart) | \b(?:said|heard)\b"
"""No words for a program or a page; in scripts and styles they are names."""
PLACES = {"src": f"{OWN} | {BRITISH}", "docs": f"{OWN} | {BRITISH} | {SPOKEN} | {REPORTED}"}
KINDS = {".py", ".toml", ".js", ".html", ".css", ".md"}


def words_in(text: str, words: str) -> list[str]:
    """Line and word; an underscore parts words as a space does."""
    searched = re.compile(words.replace(r"\b", r"(?:\b|(?<=_)|(?=_))"), re.IGNORECASE | re.VERBOSE)
    lines = enumerate(text.splitlines(), 1)
    return [f"{number}: {match[0]}" for number, line in lines for match in searched.finditer(line)]


@pytest.mark.parametrize("folder", PLACES)
def test_code_and_documentation_keep_to_the_words_of_the_field(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in KINDS]
    if not paths:
        pytest.skip("needs the source tree")
    found = {str(path): words_in(path.read_text(encoding="utf-8"), PLACES[folder]) for path in paths}
    assert {path: words for path, words in found.items() if words} == {}


PAGES = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
    "results/README.md", "benchmarks/README.md",
    *(f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.ipynb"))),
)  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_pages_outside_the_documentation_keep_to_them_too(name: str) -> None:
    if not (ROOT / name).exists():
        pytest.skip("needs the source tree")
    assert words_in((ROOT / name).read_text(encoding="utf-8"), PLACES["docs"]) == []


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module that has a space in it, but for docstrings."""
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in documentation:
            continue
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def test_messages_and_help_keep_to_them_too() -> None:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for line, text in messages(path.read_text(encoding="utf-8")):
            found += [f"{path.name}:{line}: {word}" for word in words_in(text, f"{SPOKEN} | {REPORTED}")]
    assert found == []


def test_the_page_of_the_report_keeps_to_them_too() -> None:
    folder = ROOT / "src" / "graphclean" / "report" / "page"
    shown = {
        path.name: re.sub(r"^\s*(?:/\*\*|\*|//).*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for path in sorted(folder.iterdir())
        if path.suffix in (".html", ".js")
    }
    assert len(shown) > 10
    found = {name: words_in(text, SPOKEN) for name, text in shown.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_messages_are_found_and_docstrings_left_out() -> None:
    module = '"""Goes on."""\nX = f"{X} goes on"\ndef f():\n    """Is told."""\n    raise E("was told")\n'
    assert list(messages(module)) == [(2, " goes on"), (5, "was told")]


@pytest.mark.parametrize(
    "text",
    [
        "two humps", "ood_by_humps", "learned by heart", "start anew", "vouches", "a belief", "barred=None",
        "unmixing", "strangers", "the likeliest", "_loudest_rows", "leave-own-out", "Neighbours",
        "unlabelled", "normalise_graph", "Standardiser", "optimiser", "class_colours", "centre", "behaviour",
        "Grey",
    ],
)  # fmt: skip
def test_each_word_is_found(text: str) -> None:
    assert len(words_in(text, PLACES["src"])) == 1


@pytest.mark.parametrize(
    "text", ["aria-labelledby", "optimistic", "a neighbor", "likelier", "resampled", "labels"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert words_in(text, PLACES["src"]) == []

"""The field's words, one for a thing: what must not come back into code, messages and the documentation."""

import re
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
PLACES = {"src": f"{OWN} | {BRITISH}", "docs": BRITISH}
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


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_pages_beside_the_documentation_are_in_american_spelling(name: str) -> None:
    if not (ROOT / name).exists():
        pytest.skip("needs the source tree")
    assert words_in((ROOT / name).read_text(encoding="utf-8"), BRITISH) == []


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

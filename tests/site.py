"""The blocks of the docs' pages, and a folder with all the data that they speak of."""

import io
import re
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from graphclean.data.digits import noisy_digits

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"sh", "python", "text", "toml"}

FENCE = re.compile(r"(?P<printed><!-- printed -->\n)?```(?P<language>\w*)\n")
INLINE = re.compile(r"`([^`]+)`")
GIVEN = re.compile(r"<!-- given: (.+) -->")

IMAGES = 120
PHOTOS = {"red": (200, 40, 40), "green": (40, 170, 60), "blue": (40, 60, 200)}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    printed: bool
    """Whether it is what the Python block before it prints."""

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a shell block, in words."""
        lines = self.text.replace("\\\n", "").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


@dataclass(frozen=True)
class SitePage:
    """A page of the docs."""

    blocks: list[Block]
    given: list[str]
    """What is there when it begins."""
    inline: list[str]
    """Code in its prose and tables."""


def read_page(path: Path) -> SitePage:
    """Take a page apart."""
    text = path.read_text()
    blocks, prose, at = [], "", 0
    while found := FENCE.search(text, at):
        prose += text[at : found.start()]
        at = text.index("\n```", found.end() - 1)
        blocks.append(Block(found["language"], text[found.end() : at], bool(found["printed"])))
        at += len("\n```")
    given = GIVEN.search(text)
    inline = [" ".join(code.split()) for code in INLINE.findall(prose + text[at:])]
    return SitePage(blocks, given[1].split() if given else [], inline)


def write_data(folder: Path) -> None:
    """All files that the pages speak of: a few dozen samples of each kind."""
    rng = np.random.default_rng(0)
    rows = []
    for split, each in (("train", 20), ("test", 4)):
        for name, color in PHOTOS.items():
            place = folder / "photos" / split / name
            place.mkdir(parents=True)
            for number in range(each):
                pixels = np.clip(rng.normal(color, 25, (12, 12, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number:03}.png")
                rows.append((f"photos/{split}/{name}/{number:03}.png", name))
    pd.DataFrame(rows, columns=["file", "species"]).to_csv(folder / "photos.csv", index=False)
    contents = [{"bytes": (folder / path).read_bytes(), "path": path} for path, _ in rows]
    photos = {"image": contents, "label": [name for _, name in rows]}
    pd.DataFrame(photos).to_parquet(folder / "photos.parquet")

    (folder / "shards").mkdir()
    for number in range(3):
        with tarfile.open(folder / "shards" / f"train-{number:06}.tar", "w") as shard:
            for place, (path, name) in list(enumerate(rows))[number::3]:
                for kind, content in (("png", (folder / path).read_bytes()), ("cls", name.encode())):
                    member = tarfile.TarInfo(f"{place:04}.{kind}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))

    digits = noisy_digits(noise=0.3)
    first, second = slice(0, IMAGES), slice(IMAGES, 2 * IMAGES)
    pixels, labels = digits.pixels[first], digits.labels[first]
    np.savez(folder / "embeddings.npz", features=pixels, labels=labels)
    np.save(folder / "embeddings.npy", pixels)
    np.savez(folder / "images.npz", images=digits.images[first], labels=labels)
    np.save(folder / "images.npy", digits.images[first])
    pd.DataFrame({"label": labels}).to_csv(folder / "labels.csv", index=False)
    known = ~digits.is_ood[second]
    np.savez(folder / "checked.npz", images=digits.images[second][known], labels=digits.truth[second][known])
    np.savez(folder / "new.npz", images=digits.images[second])
    table = pd.DataFrame(pixels, columns=[f"f{i}" for i in range(64)])
    table.insert(0, "species", labels.astype(str))
    table.insert(0, "key", [f"k{i}" for i in range(IMAGES)])
    table.to_parquet(folder / "table.parquet")

    topics = {name: [f"{name}{i}" for i in range(40)] for name in ("billing", "delivery", "login")}
    texts = [(" ".join(rng.choice(words, 8)), name) for name, words in topics.items() for _ in range(30)]
    pd.DataFrame(texts, columns=["text", "topic"]).to_csv(folder / "tickets.csv", index=False)

"""The named data sets: their contents, sources, and checksums."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InputError, suggest
from .cifar import Batches
from .noise import CIFAR10_CLASSES


@dataclass(frozen=True)
class Archive:
    """A downloadable file: its URL, and the public source of its checksum."""

    url: str
    md5: str
    size: int
    source: str
    """Where the MD5 is published."""

    @property
    def file(self) -> str:
        """Its name on disk."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class NamedSet:
    """A data set: its contents, where it may be stored under a root, and how to obtain it."""

    name: str
    n_classes: int
    splits: Mapping[str, int]
    """Split -> its number of images, as published."""
    pools: tuple[str, ...]
    """Splits to draw OOD images from; the first one present is used."""
    places: tuple[str, ...]
    """Folders under the root to search, in this order."""
    archive: Archive
    terms: str
    citation: str
    folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split -> its folders, if the official files are images."""
    batches: Batches | None = None
    """The batches, if the official files are such, as CIFAR's are."""
    classes: tuple[str, ...] | None = None
    """Class names in order, if the order matters."""


TORCHVISION = "github.com/pytorch/vision, torchvision/datasets"
CIFAR_TERMS = "none stated; cite"
CIFAR_CITATION = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

SETS: dict[str, NamedSet] = {
    named.name: named
    for named in (
        NamedSet(
            name="cifar10",
            n_classes=10,
            splits={"train": 50_000, "test": 10_000},
            pools=("train",),
            places=("cifar10", "cifar-10-batches-py"),
            archive=Archive(
                url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                md5="c58f30108f718f92721af3b95e74349a",
                size=170_498_071,
                source=f"www.cs.toronto.edu/~kriz/cifar.html; {TORCHVISION}/cifar.py",
            ),
            terms=CIFAR_TERMS,
            citation=CIFAR_CITATION,
            batches=Batches(
                folder="cifar-10-batches-py",
                splits={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
                meta="batches.meta",
                # As in torchvision/datasets/cifar.py.
                md5={
                    "data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "data_batch_4": "634d18415352ddfa80567beed471001a",
                    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "test_batch": "40351d587109b95175f43aff81a1287e",
                    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
                },
                label_key="labels",
                names_key="label_names",
            ),
            classes=CIFAR10_CLASSES,
        ),
        NamedSet(
            name="cifar100",
            n_classes=100,
            splits={"train": 50_000, "test": 10_000},
            pools=("train",),
            places=("cifar100", "cifar-100-python"),
            archive=Archive(
                url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                md5="eb9058c3a382ffc7106e4002c42a8d85",
                size=169_001_437,
                source=f"{TORCHVISION}/cifar.py",
            ),
            terms=CIFAR_TERMS,
            citation=CIFAR_CITATION,
            batches=Batches(
                folder="cifar-100-python",
                splits={"train": ("train",), "test": ("test",)},
                meta="meta",
                # As in torchvision/datasets/cifar.py.
                md5={
                    "train": "16019d7e3df5f24257cddd939b257f8d",
                    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                    "meta": "7973b15100ade9c7d40fb424638fde48",
                },
                label_key="fine_labels",
                names_key="fine_label_names",
            ),
        ),
        NamedSet(
            name="tinyimagenet",
            n_classes=200,
            splits={"train": 100_000, "val": 10_000},
            pools=("pool", "train"),
            places=("tinyimagenet", "tiny-imagenet-200", "tinyimagenet32"),
            archive=Archive(
                url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                size=248_100_043,
                # No checksum is published.
                source="github.com/ContinualAI/avalanche, avalanche/benchmarks/datasets/tiny_imagenet",
            ),
            terms="ImageNet's: non-commercial research",
            citation="Le and Yang, Tiny ImageNet Visual Recognition Challenge, CS 231N, 2015",
            folders={"train": ("train",), "val": ("val",)},
        ),
        NamedSet(
            name="places365",
            n_classes=365,
            splits={"val": 36_500},
            pools=("pool", "val"),
            places=("places365", "val_256"),
            archive=Archive(
                url="https://data.csail.mit.edu/places/places365/val_256.tar",
                md5="e27b17d8d44f4af9a78502beb927f808",
                size=525_158_400,
                source=f"{TORCHVISION}/places365.py",
            ),
            terms="its makers': non-commercial research",
            citation="Zhou et al., Places: A 10 Million Image Database for Scene Recognition, TPAMI 2017",
            folders={"val": ("val", "val_256", "val_large")},
        ),
    )
}


def get_set(name: str) -> NamedSet:
    """A registered set; an unknown name raises `InputError` with the nearest valid one."""
    if name not in SETS:
        raise InputError(f"no data set is called {name}; {suggest(name, SETS)}")
    return SETS[name]

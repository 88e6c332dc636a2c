"""Which arrays or columns hold what, as keyword arguments."""

from typing import TypedDict

from ..data.tables import Names


class NameOptions(TypedDict, total=False):
    """The fields of `Names`, each of which may be left out."""

    images_key: str | None
    features_key: str | None
    labels_key: str | None
    label_column: str | None
    id_column: str | None
    path_column: str | None


def to_names(options: NameOptions) -> Names:
    """As the jobs take them; an unknown one is a TypeError, as with any function."""
    return Names(**options)

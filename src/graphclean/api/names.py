"""The names of arrays and columns in the data, as keyword arguments."""

from typing import TypedDict

from ..data.tables import Names


class NameOptions(TypedDict, total=False):
    """The fields of `Names`, all of them optional."""

    images_key: str | None
    features_key: str | None
    labels_key: str | None
    label_column: str | None
    id_column: str | None
    path_column: str | None


def to_names(options: NameOptions) -> Names:
    """Convert the options to `Names`; an unknown one raises TypeError, as in any function call."""
    return Names(**options)

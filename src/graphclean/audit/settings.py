"""What a user may set about an audit, each with its reason."""

from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from ..errors import check_choice

Neighbours = Literal["exact", "approx"]
Judges = Literal["neighbours", "panel"]


@dataclass(frozen=True)
class AuditSettings:
    """Settings of `clean_embeddings` and `graphclean clean`."""

    k: tuple[int, ...] = (10, 20, 50, 100)
    """Neighbours a sample: of these, the one under which the given labels are most likely is taken."""
    neighbours: Neighbours = "exact"
    """`exact`, or `approx` for very large sets: faiss, with its recall measured (extra `ann`)."""
    judges: Judges = "neighbours"
    """`neighbours` alone, or a `panel` of neighbours and class centres, as heads on features have it."""
    certainty: float = 0.6
    """How sure it must be that a given label is right, or that it is not; `uncertain` in between."""
    eta: float = 0.8
    """Probability of its class that a sample needs to enter the selected clean set."""
    signal: float = 5.0
    """Standard errors by which neighbours must agree beyond chance; under it nothing is relabelled."""
    strength: float = 0.6
    """How sure proposals must be on average; under it the features are too weak to relabel by."""

    def __post_init__(self) -> None:
        whole = not isinstance(self.k, Integral) and all(isinstance(k, Integral) for k in self.k)
        if not whole or not self.k or min(self.k) < 1:
            raise ValueError("k must be whole numbers of at least 1, such as (10, 20)")
        check_choice("neighbours", self.neighbours, Neighbours)
        check_choice("judges", self.judges, Judges)
        if not 0.5 <= self.certainty < 1:
            raise ValueError("certainty must be from 0.5 to under 1")
        if not 0 < self.eta < 1:
            raise ValueError("eta must be between 0 and 1")
        if not 0 <= self.strength <= 1:
            raise ValueError("strength must be from 0 to 1")
        if not self.signal >= 0:
            raise ValueError("signal must be a number of at least 0")

"""The verdicts on a sample."""

from enum import StrEnum


class Verdict(StrEnum):
    """Every verdict, in the order in which they are counted and shown."""

    KEEP = "keep"
    RELABEL = "relabel"
    OOD = "ood"
    UNCERTAIN = "uncertain"
    UNLABELED = "unlabeled"
    UNREADABLE = "unreadable"

    @property
    def meaning(self) -> str:
        """A short description."""
        return MEANING[self]

    @property
    def is_estimated(self) -> bool:
        """Whether the fraction of correct verdicts of this kind can be estimated."""
        return self in (Verdict.KEEP, Verdict.RELABEL, Verdict.OOD)


MEANING = {
    Verdict.KEEP: "the label fits",
    Verdict.RELABEL: "another class fits",
    Verdict.OOD: "no class fits",
    Verdict.UNCERTAIN: "undecided",
    Verdict.UNLABELED: "had no label",
    Verdict.UNREADABLE: "no image",
}


def describe_rates(
    noise: float | None, ood: float | None, possible_ood: float | None, things: str = "samples"
) -> str | None:
    """The estimated rates in words; None where nothing was decided."""
    if noise is None:
        return None
    wrong = f"{100 * noise:.1f} % of the labels of known classes are wrong"
    if ood is not None:
        return f"{wrong}, {100 * ood:.1f} % of the {things} belong to no class"
    allowed = f" (labels would allow about {100 * possible_ood:.0f} %)" if possible_ood is not None else ""
    return f"{wrong}; whether any {things} belong to no class is unknown{allowed}"

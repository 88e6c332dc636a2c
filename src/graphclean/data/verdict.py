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

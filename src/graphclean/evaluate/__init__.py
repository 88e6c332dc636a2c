"""How good verdicts and predictions are, where the truth is known."""

from .openset import NewScores, score_new
from .verdicts import VerdictScores, score_verdicts

__all__ = ["NewScores", "VerdictScores", "score_new", "score_verdicts"]

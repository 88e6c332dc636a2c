"""How good verdicts and predictions are, where the truth is known."""

from .verdicts import VerdictScores, score_verdicts

__all__ = ["VerdictScores", "score_verdicts"]

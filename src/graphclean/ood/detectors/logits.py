"""Detectors that read logits alone: any network has these."""

from torch import Tensor

from ..detector import Detector

NOTHING = "none to speak of"


class MaxSoftmax(Detector):
    """1 − the probability of the most probable class."""

    name = "msp"
    needs = "logits"
    title = "1 − largest softmax probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and OOD Examples, ICLR 2017"
    cost = NOTHING

    def predict_logits(self, logits: Tensor) -> Tensor:
        """1 − max p."""
        return 1 - logits.softmax(1).amax(1)

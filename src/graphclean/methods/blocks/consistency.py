"""Consistency of two views from positive pairs alone: without negatives, no classes are pushed apart."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.optim import SGD

from ...config import TrainingSettings

BOTTLENECK = 4
"""Factor by which the predictor's hidden layer is narrower than z, as in SimSiam."""


class Consistency(nn.Module):
    """SimSiam's loss (Chen & He, CVPR 2021): a predictor predicts each view's z from the other's.

    No gradient flows through the target; otherwise all z could collapse.
    """

    def __init__(self, dim: int, settings: TrainingSettings) -> None:
        super().__init__()
        self.settings = settings
        hidden = max(dim // BOTTLENECK, 1)
        self.predictor = nn.Sequential(
            nn.Linear(dim, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )

    def forward(self, weak: Tensor, strong: Tensor) -> Tensor:
        """1 − cosine of prediction and target, averaged over both directions and the batch: from 0 to 2."""
        with torch.autocast(weak.device.type, enabled=False):
            forth = cosine_similarity(self.predictor(weak), strong.detach())
            back = cosine_similarity(self.predictor(strong), weak.detach())
            return 1 - (forth + back).mean() / 2

    def optimizer(self) -> SGD:
        """SGD at a constant rate: the predictor must follow the network to the end, as in SimSiam."""
        s = self.settings
        return SGD(self.parameters(), s.lr, momentum=s.momentum, weight_decay=s.weight_decay)

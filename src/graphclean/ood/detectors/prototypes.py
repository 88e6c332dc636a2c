"""The paper's own detector, on z."""

from typing import Self

import torch
from torch import Tensor

from ..detector import Detector
from ..prototypes import class_prototypes, prototype_similarity

NO_DETECTOR = "not one sample was selected as clean: there is no detector, and nothing is rejected"


class Prototypes(Detector):
    """1 − s(x): the cosine distance of z to the nearest class prototype (Eq. 8-9)."""

    name = "prototypes"
    needs = "z"
    title = "1 − largest cosine with a class prototype"
    paper = "Wu et al., NGC: A Unified Framework for Learning with Open-World Noisy Data, ICCV 2021"
    cost = "none"
    prototypes: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("prototypes", torch.zeros(n_classes, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """One prototype per class; zeros for a class without samples."""
        self.prototypes = class_prototypes(features, labels, labels >= 0, len(self.prototypes))
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """1 − s(x)."""
        return 1 - prototype_similarity(features, self.prototypes).amax(1)

    def notes(self) -> list[str]:
        """Without prototypes nothing can be rejected."""
        return [] if bool(self.prototypes.any()) else [NO_DETECTOR]

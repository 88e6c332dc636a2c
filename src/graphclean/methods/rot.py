"""Rot and Rot+: networks that predict how an image was transformed, alone or along with its class."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..errors import InputError
from ..ood.detector import Detector
from ..ood.detectors.transformations import RotationScore, TransformationScore
from ..ood.transformations import ROTATIONS, TRANSFORMATIONS, rotate_all, transform
from ..training.method import Batch, Method, MethodInfo, TrainerContext
from ..training.views import scale
from .blocks.layer_heads import WithoutClassifier
from .blocks.supervised import given_losses, labeled_mean

TOLD = "transformations"


@dataclass(frozen=True)
class RotSettings:
    """Rot has no settings."""


@dataclass(frozen=True)
class RotPlusSettings:
    """The default is the release's."""

    lambda_rotation: float = 1.0
    """Weight of predicting the rotations, relative to the classes."""

    def __post_init__(self) -> None:
        if not self.lambda_rotation >= 0:
            raise ValueError("lambda_rotation must be at least 0")


def add_head(method: Method, run: TrainerContext, outputs: int) -> None:
    """Add a head on the features that predicts transformations; refuse to if prediction uses flip TTA."""
    if run.settings.flip_tta:
        raise InputError(
            f"training.flip_tta=true: {method.info.name} tells turned images from flipped ones; leave it out"
        )
    width = method.networks["main"].feature_dim
    assert isinstance(width, int)
    method.heads[TOLD] = nn.Linear(width, outputs).to(run.device)


def give_head(method: Method, detector: Detector) -> None:
    """Pass the head to the method's own detector."""
    if isinstance(detector, RotationScore | TransformationScore):
        weight, bias = (part.detach().clone() for part in method.heads[TOLD].parameters())
        detector.take_transformations(weight, bias)


class Rot(WithoutClassifier):
    """Predict which of 72 flips, shifts and rotations was applied to an image; if that fails, it is OOD."""

    info = MethodInfo(
        name="rot",
        title="Prediction of geometric transformations",
        kind="ood",
        paper="Golan and El-Yaniv, Deep Anomaly Detection Using Geometric Transformations, NeurIPS 2018",
        cost=1.0,
        needs=("images",),
        follows="the paper, with one random transformation of each image per epoch instead of all 72, so "
        "that 216 epochs correspond to the paper's 3; a shift is a quarter of the side; network, optimizer "
        "and schedule are those of the training settings",
    )
    Settings = RotSettings
    detector = "rot"

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and a head on its features."""
        super().setup(run)
        self.weights = {TOLD: 1.0}
        add_head(self, run, TRANSFORMATIONS)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of a random transformation of each image; labels are not used."""
        shape = (len(batch.inputs),)
        which = torch.randint(TRANSFORMATIONS, shape, generator=run.generator, device=run.device)
        (out,) = run.forward(transform(scale(batch.inputs), which))
        assert out.features is not None
        return {TOLD: cross_entropy(self.heads[TOLD](out.features.float()), which)}

    def equip(self, detector: Detector) -> None:
        """Pass the head to the detector."""
        give_head(self, detector)


class RotPlus(Method):
    """Cross-entropy on the given labels, and prediction of four rotations of each image."""

    info = MethodInfo(
        name="rot-plus",
        title="Cross-entropy with rotation prediction",
        kind="loss",
        paper="Hendrycks et al., Using Self-Supervised Learning Can Improve Model Robustness and "
        "Uncertainty, NeurIPS 2019",
        cost=4.0,
        needs=("images",),
        follows="the paper and its release, without the heads for shifts, which have weight 0 there; "
        "network, optimizer and schedule are those of the training settings",
    )
    Settings = RotPlusSettings
    detector = "rot-plus"
    settings: RotPlusSettings

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and a head on its features."""
        super().setup(run)
        self.weights = {"ce": 1.0, TOLD: self.settings.lambda_rotation}
        add_head(self, run, ROTATIONS)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Classification of the upright labeled images, and rotation prediction on all images."""
        (out,) = run.forward(rotate_all(run.weak_view(batch.inputs)))
        assert out.features is not None
        upright = out.logits[: len(batch.given)]
        turns = torch.arange(ROTATIONS, device=run.device).repeat_interleave(len(batch.given))
        return {
            "ce": labeled_mean(given_losses(upright, batch.given), batch.given >= 0),
            TOLD: cross_entropy(self.heads[TOLD](out.features.float()), turns),
        }

    def equip(self, detector: Detector) -> None:
        """Pass the head to the detector."""
        give_head(self, detector)

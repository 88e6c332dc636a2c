"""RoG: after cross-entropy, robust Gaussian classifiers on several layers' features replace the head."""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import nll_loss

from ..training.method import Batch, MethodInfo, Selected, Selection, TrainerContext
from ..training.networks import Network
from ..training.predictors import LayerHeads
from .blocks.layer_heads import FittedHeads, embed_layers
from .blocks.robust_covariance import robust_gaussians, smallest_of_each
from .blocks.supervised import classify_weak

NEAREST_HALF = 0.5
"""Fraction of the held-out samples used to weight the layers: those nearest to the mean of their given label.
"""
WEIGHING_EPOCHS, WEIGHING_BATCH, WEIGHING_LR = 20, 50, 0.02
"""Epochs, batch size and learning rate of Adam for the weights of the layers."""
LEAST_MIXED = 1e-10
"""Added to probabilities, so that those of a class without samples have a logarithm."""


@dataclass(frozen=True)
class RogSettings:
    """The defaults are the release's, except for the held-out samples."""

    keep: float = 0.7
    """Fraction of each class that its Gaussian is fitted to: the samples nearest to the mean; 1 keeps all."""
    layers: int = 3
    """Number of layers with a classifier each, the last ones of the network; networks may have fewer."""
    held_out: float = 0.05
    """Fraction of the labeled samples that is held out to weight the layers, as memorized samples would favor
    the last one; the release takes test samples. 0: all layers have the same weight.
    """

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ValueError("keep must be above 0 and at most 1")
        if self.layers < 1:
            raise ValueError("layers must be at least 1")
        if not 0 <= self.held_out < 1:
            raise ValueError("held_out must be at least 0 and less than 1")


class RoG(FittedHeads):
    """Cross-entropy on the given labels; then a generative classifier on most of each class's features."""

    info = MethodInfo(
        name="rog",
        title="Robust Generative classifier (RoG)",
        kind="selection",
        paper="Lee et al., Robust Inference via Generative Classifiers for Handling Noisy Labels, ICML 2019",
        cost=1.0,
        follows="the paper; the samples that weight the layers are held out of the training set, not taken "
        "from the test set; the initial covariance is that of all classes, in the release nearly that of the "
        "last class; the layers are the last two blocks and the trunk's features; network, optimizer and "
        "schedule are those of the training settings",
    )
    Settings = RogSettings
    detector = "msp"
    settings: RogSettings
    held_out: Tensor
    kept: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and choose the held-out samples."""
        super().setup(run)
        held_out = torch.zeros_like(run.given, dtype=torch.bool)
        if self.settings.held_out:
            drawn = torch.rand(len(run.given), generator=run.generator, device=run.device)
            held_out = (drawn < self.settings.held_out) & (run.given >= 0)
        self.register_buffer("held_out", held_out)
        self.register_buffer("kept", run.given >= 0)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """All samples in random order, with those trained on spread evenly."""
        return (run.shuffle((run.given >= 0) & ~self.held_out),)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of a weak view of the samples that are not held out."""
        given = batch.given.where(~self.held_out[batch.index], torch.full_like(batch.given, -1))
        return {"ce": classify_weak(run, replace(batch, given=given))}

    def fit_predictor(self, run: TrainerContext) -> None:
        """Fit Gaussians to the features of each layer, and weight the layers by the held-out samples."""
        s, network = self.settings, self.networks["main"]
        assert isinstance(network, Network)
        layers = embed_layers(run, network, s.layers)
        heads = LayerHeads(network, [x.shape[1] for x in layers]).to(run.device)
        learned = run.given.where(~self.held_out, torch.full_like(run.given, -1))
        for x, head in zip(layers, heads.heads, strict=True):
            found, self.kept = robust_gaussians(x, learned, run.n_classes, s.keep, run.generator)
            weight, bias = found.linear()
            head.load_state_dict({"weight": weight, "bias": bias})
        held = self.held_out.nonzero().squeeze(1)
        if len(held):  # `found` is now that of the last layer, which the release uses for this too
            distances = found.distances(layers[-1][held].double(), run.given[held])
            chosen = held[smallest_of_each(distances, torch.zeros_like(held), 1, NEAREST_HALF)]
            self.kept[chosen] = True
            said = [head(x[chosen].double()).softmax(1) for x, head in zip(layers, heads.heads, strict=True)]
            heads.shares.copy_(weigh_layers(torch.stack(said), run.given[chosen], run.generator))
        self.fitted = [heads]

    def selection(self, run: TrainerContext) -> Selection:
        """The given labels; at the end, selected are those that the last layer's Gaussians are fitted to."""
        return Selected(run.given.clamp(min=0), self.kept)


def weigh_layers(said: Tensor, labels: Tensor, generator: Generator) -> Tensor:
    """Weights of the layers (L,) with which the mean of their probabilities (L, n, K) best fits the labels.

    A few optimization steps from equal weights.
    """
    free = torch.ones(len(said), dtype=said.dtype, device=said.device, requires_grad=True)
    optimizer = torch.optim.Adam([free], lr=WEIGHING_LR)
    for _ in range(WEIGHING_EPOCHS):
        order = torch.randperm(len(labels), generator=generator, device=labels.device)
        for rows in torch.split(order, WEIGHING_BATCH):
            optimizer.zero_grad()
            p = (free.softmax(0).view(-1, 1, 1) * said[:, rows]).sum(0)
            nll_loss((p + LEAST_MIXED).log(), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return free.detach().softmax(0)

"""Discriminants on the features of a trained network, in place of a classifier or for lack of one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...training.method import Method, TrainerContext
from ...training.networks import Network, Output
from ...training.predictors import LayerHeads
from .robust_covariance import robust_gaussians


def embed_layers(run: TrainerContext, network: Network, count: int) -> Sequence[Tensor]:
    """Features of the last `count` layers for the whole training set, each (N, width)."""
    widths: list[int] = []

    def forward(x: Tensor) -> Output:
        layers = network.forward_all(x)[1][-count:]
        widths[:] = [layer.shape[1] for layer in layers]
        return Output(layers[-1], layers[-1][:, :0], torch.cat(layers, 1))

    out = run.embed(forward, features=True)
    assert out.features is not None
    return torch.split(out.features, widths, dim=1)


class FittedHeads(Method):
    """A method that fits its predictor to the network's features after the last epoch."""

    def setup(self, run: TrainerContext) -> None:
        """Create the network."""
        super().setup(run)
        # A resumed run fits it again, and it contains the network: no state to save.
        self.fitted: list[LayerHeads] = []

    def predictor(self) -> nn.Module:
        """The network with its discriminants, once they are fitted."""
        return self.fitted[0] if self.fitted else self.networks["main"]


class WithoutClassifier(FittedHeads):
    """A method that trains a network for OOD detection only.

    Its classifier is a linear discriminant analysis of the features by the given labels, fitted after the
    last epoch, so that prediction and report have classes; no accuracy is claimed for it.
    """

    def fit_predictor(self, run: TrainerContext) -> None:
        """Fit the discriminants."""
        network = self.networks["main"]
        assert isinstance(network, Network)
        (features,) = embed_layers(run, network, 1)
        found, _ = robust_gaussians(features, run.given, run.n_classes, 1.0, run.generator)
        weight, bias = found.linear()
        heads = LayerHeads(network, [features.shape[1]]).to(run.device)
        heads.heads[0].load_state_dict({"weight": weight, "bias": bias})
        self.fitted = [heads]

    def notes(self, run: TrainerContext) -> list[str]:  # noqa: ARG002
        """Report that no classifier was trained."""
        return [
            f"{self.info.name} trains no classifier: classes come from a linear discriminant analysis of the "
            "network's features by the given labels, and verdicts from these features"
        ]

"""What predicts in a run: a network, several of them, or one with classifiers fitted on its layers."""

from collections.abc import Sequence

from torch import Tensor, double, nn, stack
from torch.nn.functional import normalize

from .networks import Ensemble, Network, Output


class LayerHeads(nn.Module):
    """A network with a linear classifier on each of its last layers in place of its own classifier.

    The probability of a class is the weighted mean of those of the classifiers, and z is the trunk's
    features, normalized to unit length. The classifiers are fitted rather than trained, and run in float64
    even under autocast, since differences between discriminants are small relative to their terms.
    """

    def __init__(self, network: Network, widths: Sequence[int]) -> None:
        super().__init__()
        self.network, self.widths = network, list(widths)
        made = (nn.Linear(width, network.n_classes, dtype=double) for width in widths)
        self.heads = nn.ModuleList(made).requires_grad_(requires_grad=False)
        self.shares: Tensor
        self.register_buffer("shares", Tensor([1 / len(self.widths)] * len(self.widths)).to(double))

    @property
    def feature_dim(self) -> int:
        """Length of the features."""
        return self.widths[-1]

    def forward(self, x: Tensor) -> Output:
        """Log probabilities, features of unit length, features."""
        return self.forward_all(x)[0]

    def forward_all(self, x: Tensor) -> tuple[Output, tuple[Tensor, ...]]:
        """The same, and features of several depths."""
        layers = self.network.forward_all(x)[1]
        last = zip(self.heads, layers[-len(self.widths) :], strict=True)
        said = [head(seen.double()).log_softmax(1) for head, seen in last]
        mixed = (stack(said) + self.shares.log().view(-1, 1, 1)).logsumexp(0)
        return Output(mixed.float(), normalize(layers[-1].float(), dim=1), layers[-1]), layers

    def linear_head(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the classifier on the trunk's features."""
        weight, bias = self.heads[-1].parameters()
        return weight.float(), bias.float()


Predictor = Network | Ensemble | LayerHeads
"""What a run can use for prediction."""

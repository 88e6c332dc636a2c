"""The probability that a sample's label is wrong given its loss: a mixture of two beta distributions."""

from typing import NamedTuple

import torch
from torch import Tensor

FIRST_BETAS = ((1.0, 2.0), (2.0, 1.0), (0.5, 0.5))
"""Initial a, b and weights of both components; the second one has the large values."""
BETA_EDGE = 1e-4
"""Values are clamped this far from 0 and 1, where densities are 0 or infinite."""
LEAST_DENSITY = 1e-12
"""Minimum density, so that a value that neither component explains belongs to both."""
LEAST_BETA_VARIANCE = 1e-9
"""Minimum variance of a component, so that equal values have a density."""
TRIMMED = 0.05
"""Fraction of the losses at either end that is left out of the fit as outliers."""
FEWEST_LOSSES = 3
"""Minimum number of losses to fit a mixture: of two, both would be trimmed."""
LOSS_EDGE = 1e-3
"""Scaled losses are clamped this far from 0 and 1."""
PLACES = 100
"""Number of losses between the two ends for which the probability is tabulated."""


class BetaMixture(NamedTuple):
    """a, b and weight of both components, each (2,) and in float64."""

    a: Tensor
    b: Tensor
    weight: Tensor

    def densities(self, x: Tensor) -> Tensor:
        """Weighted densities (2, n) at values between 0 and 1."""
        a, b, x = self.a.unsqueeze(1), self.b.unsqueeze(1), x.double()
        norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return self.weight.unsqueeze(1) * ((a - 1) * x.log() + (b - 1) * (-x).log1p() - norm).exp()


@torch.no_grad()
def fit_beta_mixture(x: Tensor, iterations: int = 10) -> BetaMixture:
    """EM on values (n,) from 0 to 1; the M-step matches moments instead of maximizing the likelihood."""
    x = x.double().clamp(BETA_EDGE, 1 - BETA_EDGE)
    mixture = BetaMixture(*(torch.tensor(start, dtype=x.dtype, device=x.device) for start in FIRST_BETAS))
    for _ in range(iterations):
        share = mixture.densities(x).clamp(min=LEAST_DENSITY)
        share = share / share.sum(0)
        count = share.sum(1)
        mean = (share * x).sum(1) / count
        variance = (share * (x - mean.unsqueeze(1)) ** 2).sum(1) / count
        a = mean * (mean * (1 - mean) / variance.clamp(min=LEAST_BETA_VARIANCE) - 1)
        mixture = BetaMixture(a, a * (1 - mean) / mean, count / len(x))
    return mixture


class LossModel(NamedTuple):
    """The probability that a label is wrong, tabulated for `PLACES` losses between `low` and `high`."""

    low: Tensor
    high: Tensor
    table: Tensor

    def noisy(self, losses: Tensor) -> Tensor:
        """The probability for each loss; beyond the ends, that of the nearest end."""
        place = (self._scaled(losses) * PLACES).long()
        return self.table[place]

    def _scaled(self, losses: Tensor) -> Tensor:
        low = self.low + 1e-5
        return ((losses - low) / (self.high - low + 1e-6).clamp(min=1e-6)).clamp(LOSS_EDGE, 1 - LOSS_EDGE)


def no_loss_model(device: torch.device) -> LossModel:
    """A model by which no label is wrong."""
    return LossModel(*(torch.zeros(shape, device=device) for shape in ((), (), (PLACES,))))


@torch.no_grad()
def fit_loss_model(losses: Tensor, iterations: int = 10) -> LossModel:
    """Fit the model to the losses (n,) of labeled samples; if there are too few, no label is wrong.

    From its maximum on the probability stays constant: the largest losses also belong to wrong labels, even
    if both densities vanish there.
    """
    none = no_loss_model(losses.device)
    if len(losses) < FEWEST_LOSSES:
        return none
    low, high = losses.quantile(TRIMMED), losses.quantile(1 - TRIMMED)
    model = none._replace(low=low, high=high)
    kept = losses[(losses >= low) & (losses <= high)]
    mixture = fit_beta_mixture(model._scaled(kept), iterations)
    x = torch.linspace(LEAST_DENSITY, 1 - LEAST_DENSITY, PLACES, dtype=torch.float64, device=losses.device)
    good, bad = mixture.densities(x)
    table = bad / (good + bad + LEAST_DENSITY)
    place = torch.arange(PLACES, device=losses.device)
    table = torch.where(place < table.argmax(), table, table.max())
    return model._replace(table=table.float())

"""MixMatch: labeled and unlabeled samples of a step with guessed labels, mixed in pairs across both sets."""

import math

import torch
from torch import Generator, Tensor
from torch.nn.functional import mse_loss

from ...training.augment import draw_beta


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise probabilities (B, K) to the power 1 / temperature and renormalize."""
    powered = (p / p.amax(1, keepdim=True)) ** (1 / temperature)
    return powered / powered.sum(1, keepdim=True)


def mix_pairs(images: Tensor, targets: Tensor, alpha: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Images and soft labels, mixed with a random permutation of themselves; unchanged if alpha is 0.

    One λ ~ Beta(alpha, alpha) per batch, or 1 − λ if that is larger, so that each image dominates its
    mixture.
    """
    if alpha <= 0:
        return images, targets
    lam = draw_beta(alpha, alpha, generator)
    lam = torch.maximum(lam, 1 - lam)
    partner = torch.randperm(len(images), generator=generator, device=images.device)
    return lam * images + (1 - lam) * images[partner], lam * targets + (1 - lam) * targets[partner]


def mixmatch_losses(logits: Tensor, targets: Tensor, labeled: int) -> dict[str, Tensor]:
    """Cross-entropy of the first `labeled` rows, squared error of the others, and the prior over all.

    The prior term is the divergence of the mean prediction from the uniform distribution, KL(uniform ‖ mean).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p = logits.log_softmax(1)
    return {
        "ce": -(targets[:labeled] * log_p[:labeled]).sum(1).mean(),
        "consistency": mse_loss(log_p[labeled:].exp(), targets[labeled:]),
        "prior": divergence_from_uniform(log_p),
    }


def divergence_from_uniform(log_p: Tensor) -> Tensor:
    """KL(uniform ‖ mean prediction) of log-probabilities (B, K)."""
    n, k = log_p.shape
    return math.log(n / k) - log_p.logsumexp(0).mean()


def cycle_rows(rows: Tensor, shape: tuple[int, int], generator: Generator) -> Tensor:
    """Batches (steps, size) of `rows` in random order, reshuffled after each pass over them."""
    steps, size = shape
    times = -(-steps * size // len(rows))
    keys = torch.rand(times, len(rows), generator=generator, device=rows.device)
    return rows[keys.argsort(1).flatten()[: steps * size]].view(steps, size)

"""Losses of a batch's labeled samples; unlabeled ones are masked, so that shapes are static."""

import torch
from torch import Generator, Tensor

from ...training.augment import draw_beta
from ...training.method import Batch, TrainerContext


def labeled_mean(values: Tensor, labeled: Tensor) -> Tensor:
    """The mean over the samples of a mask, or weighted by it; 0 if it is empty."""
    weight = labeled.to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp(min=1)


def given_losses(logits: Tensor, given: Tensor) -> Tensor:
    """−log p of each sample's given label, in float32 at least; of class 0 if it has none."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -logits.log_softmax(1).gather(1, given.clamp(min=0).unsqueeze(1)).squeeze(1)


def labeled_partners(labeled: Tensor, generator: Generator) -> Tensor:
    """A random permutation of the labeled samples among themselves; the others keep their place."""
    keys = torch.rand(len(labeled), generator=generator, device=labeled.device) + 2 * ~labeled
    order, rank = keys.argsort(), labeled.long().cumsum(0) - 1
    place = torch.arange(len(labeled), device=labeled.device)
    return torch.where(labeled, order[rank], place)


def classify_weak(run: TrainerContext, batch: Batch, alpha: float = 0.0) -> Tensor:
    """Cross-entropy of one weak view, mixed with other labeled samples by λ ~ Beta(alpha, alpha)."""
    labeled, views = batch.given >= 0, run.weak_view(batch.inputs)
    if alpha <= 0:
        (out,) = run.forward(views)
        return labeled_mean(given_losses(out.logits, batch.given), labeled)
    lam = draw_beta(alpha, alpha, run.generator)
    partner = labeled_partners(labeled, run.generator)
    (out,) = run.forward(lam * views + (1 - lam) * views[partner])
    own, other = (given_losses(out.logits, labels) for labels in (batch.given, batch.given[partner]))
    return labeled_mean(lam * own + (1 - lam) * other, labeled)

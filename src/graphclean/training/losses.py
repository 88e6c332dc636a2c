"""Eq. 5-7 of the paper on tensors of fixed shape: sets are masks, so nothing synchronizes with the host.

Everything is computed at least in float32, for inputs of any type and under autocast.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Positives = Literal["release", "paper"]


class ContrastiveLosses(NamedTuple):
    """The two contrastive terms of Eq. 7, each averaged over the batch."""

    inst: Tensor
    """Eq. 5."""
    subgraph: Tensor
    """Eq. 6."""


def contrastive_losses(
    weak_z: Tensor,
    strong_z: Tensor,
    labels: Tensor,
    selected: Tensor,
    *,
    tau_inst: float = 0.3,
    tau_subgraph: float = 1.0,
    positives: Positives = "release",
) -> ContrastiveLosses:
    """Eq. 5 and 6 for a batch of unit embeddings (B, d) of two views, from one similarity matrix.

    Anchors are the weak views of all B samples. An anchor is compared with A(i): all other weak views and all
    strong views, 2B − 1 in total. In Eq. 5 the only positive is the anchor's own strong view. Eq. 6 has P(i)
    = {p in A(i): ŷ_p = ŷ_i and both selected}, which contains the own strong view of a selected anchor, and
    is empty for other anchors. These contribute 0 with `paper`; with `release` the own strong view is a
    positive of every anchor, so that Eq. 6 also pulls together the views of unselected samples. The paper
    sums over the set; these are means over the batch, as in the release.

    `labels` are the pseudo-labels ŷ, `selected` is a mask (bool, or 0 and 1).
    """
    if positives not in ("release", "paper"):
        raise ValueError(f"positives is 'release' or 'paper', not {positives!r}")
    with torch.autocast(weak_z.device.type, enabled=False):
        weak, strong = _at_least_float32(weak_z), _at_least_float32(strong_z)
        similarity = weak @ torch.cat([weak, strong]).T
        own = torch.eye(len(weak), dtype=torch.bool, device=weak.device)
        chosen = selected.bool()
        same = (labels.unsqueeze(1) == labels) & chosen.unsqueeze(1) & chosen
        mask = torch.cat([same & ~own, same | own if positives == "release" else same], 1)
        count = mask.sum(1)

        compared = similarity.masked_fill(torch.cat([own, torch.zeros_like(own)], 1), -torch.inf)
        to_own = similarity[:, len(weak) :].diagonal()
        inst = (compared / tau_inst).logsumexp(1) - to_own / tau_inst
        to_positives = (similarity * mask).sum(1) / count.clamp(min=1)
        subgraph = (compared / tau_subgraph).logsumexp(1) * (count > 0) - to_positives / tau_subgraph
        return ContrastiveLosses(inst.mean(), subgraph.mean())


def mixup_cross_entropy(
    logits: Tensor, labels_a: Tensor, labels_b: Tensor, lam: float | Tensor, weight: Tensor
) -> Tensor:
    """Cross-entropy of images mixed as lam · a + (1 − lam) · b, averaged over the samples with weight 1.

    In a batch padded to a fixed size the padding has weight 0, but its labels must still be classes. If all
    weights are 0, so is the loss. `lam` is one number, or one per sample.
    """
    log_p = _at_least_float32(logits).log_softmax(1)
    of_a, of_b = (log_p.gather(1, labels.unsqueeze(1)).squeeze(1) for labels in (labels_a, labels_b))
    weight = weight.to(log_p.dtype)
    return -(weight * (lam * of_a + (1 - lam) * of_b)).sum() / weight.sum().clamp(min=1)


def _at_least_float32(x: Tensor) -> Tensor:
    """Promote half precision to float32; float64 is kept."""
    return x.to(torch.promote_types(x.dtype, torch.float32))

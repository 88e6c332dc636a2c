"""A soft label for every sample: the moving average of its predictions."""

from torch import Tensor

CLIP = 1e-4
"""Probabilities are clamped this far from 0 and 1, so that 1 − ⟨t, p⟩ stays above 0."""


def clipped_softmax(logits: Tensor) -> Tensor:
    """Predictions in float32, clamped away from 0 and 1."""
    return logits.float().softmax(1).clamp(CLIP, 1 - CLIP)


def update_rows(store: Tensor, index: Tensor, p: Tensor, beta: float) -> Tensor:
    """Update the rows `index` of the store by predictions (B, K) with weight 1 − beta, and return them.

    A sample that occurs twice in a batch is updated once, by either of its predictions.
    """
    now = p.detach() / p.detach().sum(1, keepdim=True)
    rows = beta * store[index] + (1 - beta) * now
    store[index] = rows
    return rows


def early_learning(t: Tensor, p: Tensor) -> Tensor:
    """The regularization term of ELR, the mean of log(1 − ⟨t, p⟩)."""
    return (1 - (t * p).sum(1)).log().mean()

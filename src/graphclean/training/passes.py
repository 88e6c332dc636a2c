"""A pass of a network over a whole set in evaluation mode, divided among the processes of a group."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..distributed.group import ALONE, Group
from .batches import Inputs, ordered_batches
from .inference import copy_output, join_outputs
from .networks import Output
from .views import Views, scale


def divide(forward: Callable[[Tensor], Output], batch: Tensor, group: Group) -> Output:
    """The outputs of a batch, of which each process computes a part, with exact gradients."""
    if not group.several:
        return forward(batch)
    found = forward(batch[group.part(len(batch))])
    return _map(lambda part: group.join_rows(part, len(batch)), found)


def _map(change: Callable[[Tensor], Tensor], out: Output) -> Output:
    features = change(out.features) if out.features is not None else None
    return Output(change(out.logits), change(out.z), features)


def evaluate(
    forward: Callable[[Tensor], Output],
    inputs: Inputs,
    size: int,
    group: Group,
    *,
    views: Views | None = None,
    features: bool = False,
    pause: Callable[[], None] = lambda: None,
) -> Output:
    """Outputs of all inputs in batches of `size`; with `views`, of a weak view of each.

    In a group, batches are dealt in turn; each process draws the random numbers of all. `pause` is called
    before every round of batches, by every process equally often, and may raise.
    """
    batches = ordered_batches(len(inputs), size, inputs.device)
    group = group if len(batches) >= group.size else ALONE  # with fewer, every process passes all
    own = batches[group.rank :: group.size]
    stream = inputs.stream(own)
    outputs = []
    for first in range(0, len(batches), group.size):
        pause()
        for turn in range(first, min(first + group.size, len(batches))):
            if turn % group.size == group.rank:
                batch = next(stream)
                out = forward(views.weak(batch) if views is not None else scale(batch))
                outputs.append(copy_output(out, features=features))
            elif views is not None:
                views.skip_weak(size, inputs.shape)
    if not group.several:
        return join_outputs(outputs, len(inputs))
    columns = zip(*outputs, strict=True)
    rounds = -(-len(batches) // group.size)
    return Output(
        *(_gather(column, rounds, group)[: len(inputs)] for column in columns if column[0] is not None)
    )


def _gather(own: Sequence[Tensor], rounds: int, group: Group) -> Tensor:
    """All rows in order, whose batches were dealt to the processes in turn."""
    absent = [torch.zeros_like(own[0])] * (rounds - len(own))
    dealt = group.exchange(torch.stack([*own, *absent]))
    return dealt.transpose(0, 1).flatten(0, 2)

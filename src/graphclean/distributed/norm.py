"""Batch norm over the whole batch of which each process has a part."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from ..errors import InputError
from .group import Group

N = TypeVar("N", bound=nn.Module)

FOLLOWING = ("drop", "act")
"""What timm's norms do after normalizing, in this order."""


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Normalizes by the statistics of all processes' rows, on any device.

    PyTorch's own runs on GPUs alone, can't be differentiated twice, and mixes precisions where a part is
    empty. Parts may differ in length here, and be empty.
    """

    group: Group

    def _check_input_dim(self, input: Tensor) -> None:
        """Inputs of any number of dimensions, as the layer it replaces has checked before."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalized rows of this process, after what the replaced layer adds to that."""
        out = self._normalize(x) if self.training else super().forward(x)
        for name in FOLLOWING:
            if hasattr(self, name):
                out = getattr(self, name)(out)
        return out

    def _normalize(self, x: Tensor) -> Tensor:
        mean, variance, count = self._statistics(x)
        if self.running_mean is not None and self.running_var is not None:
            self._remember(mean.detach(), (variance * count / (count - 1).clamp(min=1)).detach())
        shape = (1, -1, *([1] * (x.ndim - 2)))
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        return x * scale.view(shape).to(x.dtype) + shift.view(shape).to(x.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance per channel, and the number of values, of all processes.

        Merged from each part's own, since sums of squares would cancel.
        """
        values = x.float() if x.dtype != torch.float64 else x
        others = [0, *range(2, x.ndim)]
        count = values.new_tensor([values.numel() // values.shape[1]])
        mean = squares = values.sum(others)
        if len(values):
            variance, mean = torch.var_mean(values, others, correction=0)
            squares = variance * count
        found = self.group.exchange(torch.cat([mean, squares, count]))
        channels = len(mean)
        means, all_squares, counts = found[:, :channels], found[:, channels:-1], found[:, -1:]
        total = counts.sum()
        together = (means * counts).sum(0) / total
        variance = (all_squares + counts * (means - together) ** 2).sum(0) / total
        return together, variance, total.detach()

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        weight = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean), weight)
        self.running_var.lerp_(variance.to(self.running_var), weight)


def share_batch_norm(network: N, group: Group) -> N:
    """The network with batch norm over all processes; weights, statistics and names stay."""
    if not group.several:
        return network
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            plain = type(layer).forward is nn.modules.batchnorm._BatchNorm.forward
            if not plain and not any(hasattr(layer, name) for name in FOLLOWING):
                kind = type(layer).__name__
                raise InputError(
                    f"training.network: its {kind} can't be shared by several processes; start one, or take "
                    "another network"
                )
            # Its type and place stay as well: only what it does is another.
            layer.__class__ = SharedBatchNorm
            layer.group = group  # type: ignore[assignment]
    return network

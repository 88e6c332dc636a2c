"""Batch norm over the whole batch of which each process has a part."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from .group import Group

N = TypeVar("N", bound=nn.Module)


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Normalizes by the statistics of all processes' rows, on any device.

    PyTorch's own runs on GPUs alone. Parts may differ in length, and be empty.
    """

    group: Group

    def _check_input_dim(self, input: Tensor) -> None:
        """Inputs of any number of dimensions, as the layer it replaces has checked before."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalized rows of this process."""
        if not self.training:
            return super().forward(x)
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
        own = values.transpose(0, 1).flatten(1)
        count = own.new_tensor([own.shape[1]])
        mean = own.sum(1) / count.clamp(min=1)
        squares = ((own - mean.unsqueeze(1)) ** 2).sum(1)
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


def share_batch_norm(network: N, group: Group, device: torch.device) -> N:
    """The network with batch norm over all processes; weights and names stay."""
    if not group.several:
        return network
    if device.type == "cuda":
        converted: N = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        return converted
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            # Its weights, statistics, type and place all stay: only what it does is another.
            layer.__class__ = SharedBatchNorm  # type: ignore[assignment]
            layer.group = group  # type: ignore[assignment]
    return network

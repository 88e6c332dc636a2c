"""A stand-in for timm, whose networks and weights are too much for a test."""

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

MEAN, STD = (0.5, 0.4, 0.3), (0.1, 0.2, 0.4)


class StandIn(nn.Module):
    """A model such as timm's: a map, then a head that pools and, with classes, classifies."""

    def __init__(self, in_chans: int, num_classes: int, pretrained: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()
        if pretrained:
            weight = self.conv.weight.data
            self.conv.weight.data = torch.linspace(-1, 1, weight.numel()).view_as(weight)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))  # type: ignore[no-any-return]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)


def fake_timm(
    names: Sequence[str], fixed: Sequence[str] = (), made: list[dict[str, Any]] | None = None
) -> dict[str, types.ModuleType]:
    """The modules `timm` and `timm.data`, with networks of these names.

    `fixed` are those that must be told their size; what is asked for is added to `made`.
    """
    timm, data = types.ModuleType("timm"), types.ModuleType("timm.data")

    def create_model(
        name: str, *, pretrained: bool, num_classes: int, in_chans: int, **more: Any
    ) -> nn.Module:
        if made is not None:
            made.append({"name": name, "pretrained": pretrained, **more})
        if name.endswith(".gone"):
            raise RuntimeError("no weights\nat all")
        return StandIn(in_chans, num_classes, pretrained)

    stand_ins = {
        "data": data,
        "create_model": create_model,
        "is_model": lambda name: name.split(".")[0] in names,
        "list_models": lambda: list(names),
        "get_pretrained_cfg": lambda name: types.SimpleNamespace(fixed_input_size=name in fixed),
    }
    for name, value in stand_ins.items():
        setattr(timm, name, value)
    config = {"input_size": (3, 20, 20), "mean": MEAN, "std": STD}
    data.resolve_model_data_config = lambda _: config  # type: ignore[attr-defined]
    return {"timm": timm, "timm.data": data}

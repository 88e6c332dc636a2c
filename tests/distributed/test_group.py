"""What processes exchange: against what one process computes from everything."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphclean.distributed.group import ALONE, Group, LostProcessError
from graphclean.distributed.norm import share_batch_norm
from graphclean.errors import InputError
from tests.processes import together

ROWS = 7
"""Not a multiple of any size used here."""


def data() -> Tensor:
    return torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def exchange_plain_values(group: Group) -> dict[str, Any]:
    rows = data()
    mine = rows[group.part(ROWS)]
    mean = torch.full((2,), float(group.rank)), torch.tensor([group.rank], dtype=torch.int64).double()
    group.average(mean)
    led = [torch.full((3,), group.rank), torch.tensor([group.rank == 0, True])]
    group.follow(led)
    sent = group.leader_sends({"a": rows, "b": rows > 0} if group.leads else None)
    return {
        "gathered": group.gather(mine, ROWS),
        "flags": group.gather(mine > 0, ROWS),
        "mean": mean,
        "led": led,
        "sent": sent,
        "says": group.leader_says(f"from {group.rank}"),
        "all": group.all_say(group.rank),
        "agreed": (group.agree(group.rank == 0), group.agree(group.rank == 1)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 9])
def test_every_process_receives_the_same(size: int) -> None:
    rows = data()
    for found in together(size, exchange_plain_values):
        assert torch.equal(found["gathered"], rows)
        assert torch.equal(found["flags"], rows > 0)
        assert all(torch.allclose(each, torch.tensor((size - 1) / 2).to(each)) for each in found["mean"])
        assert torch.equal(found["led"][0], torch.zeros(3).long())
        assert found["led"][1].tolist() == [True, True]
        assert torch.equal(found["sent"]["a"], rows)
        assert torch.equal(found["sent"]["b"], rows > 0)
        assert (found["says"], found["all"]) == ("from 0", list(range(size)))
        assert found["agreed"] == (True, False)


def test_alone_nothing_changes() -> None:
    found = exchange_plain_values(ALONE)
    assert torch.equal(found["gathered"], data())
    assert (found["says"], found["all"], found["agreed"]) == ("from 0", [0], (True, False))
    assert torch.equal(ALONE.join_rows(data(), ROWS), data())


class Net(nn.Module):
    """Two norms, as after a convolution and after a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Conv2d(1, 3, 2),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(12, 4),
            nn.BatchNorm1d(4),
        )
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def contrast(z: Tensor, skip: int) -> Tensor:
    """A loss of all pairs of some rows, which no mean over parts equals."""
    z = nn.functional.normalize(z)
    kept = z[skip:]
    return (kept @ kept.T).exp().sum(1).log().mean() + (kept[0] - kept[-1]).pow(2).sum()


def train_twice(group: Group, n: int) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of two steps, and the buffers after them; a parameter is applied to all rows, too."""
    net = share_batch_norm(Net(), group).train()
    own = nn.Parameter(torch.ones(4, dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    gradients = []
    for _ in range(2):
        x = torch.randn(n, 1, 3, 3, generator=generator, dtype=torch.float64)
        z = group.join_rows(net(x[group.part(n)]), n)
        contrast(z * own, skip=1).backward()  # type: ignore[no-untyped-call]
        found = [weights.grad for weights in (*net.parameters(), own) if weights.grad is not None]
        group.average(found)
        gradients += [each.clone() for each in found]
        net.zero_grad()
        own.grad = None
    return gradients, list(net.buffers())


@pytest.mark.slow
@pytest.mark.parametrize(("size", "n"), [(2, 8), (3, 8), (3, 2)])
def test_gradients_and_statistics_are_those_of_the_whole_batch(size: int, n: int) -> None:
    """Also with parts of different length, and with an empty one."""
    expected, statistics = train_twice(ALONE, n)
    for gradients, buffers in together(size, train_twice, n):
        torch.testing.assert_close(gradients, expected, atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(buffers, statistics, atol=1e-12, rtol=1e-10)


def differentiate_twice(group: Group) -> Tensor:
    """The gradient of a gradient's length, as in meta-learning; every process applies the net to all rows."""
    net = share_batch_norm(Net(), group).train()
    x = torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = list(net.parameters())
    first = torch.autograd.grad(contrast(net(x), 0), weights, create_graph=True)
    second = torch.autograd.grad(sum(each.pow(2).sum() for each in first), weights)  # type: ignore[arg-type]
    group.average(second)
    return torch.cat([each.flatten() for each in second])


@pytest.mark.slow
def test_shared_norms_can_be_differentiated_twice() -> None:
    expected = differentiate_twice(ALONE)
    for found in together(2, differentiate_twice):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


class Acting(nn.BatchNorm2d):
    """As in timm: a norm with what follows it, in one layer."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class Odd(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def act(group: Group) -> list[Tensor]:
    net = share_batch_norm(nn.Sequential(Acting(3)).double(), group)
    x = torch.randn(6, 3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = [group.join_rows(net(x[group.part(6)]), 6).detach()]
    with pytest.raises(InputError, match="its Odd can't be shared") if group.several else nullcontext():
        share_batch_norm(nn.Sequential(Odd(3)), group)
    return [*found, net.eval()(x).detach()]


@pytest.mark.slow
def test_a_norm_that_acts_still_acts() -> None:
    expected = act(ALONE)
    assert float(expected[0].min()) == 0
    for found in together(2, act):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


def fail_alone(group: Group) -> str:
    if group.rank == 1:
        group.leave_reason("the disk is full")
        return "left"
    try:
        group.all_say(1)
    except LostProcessError as error:
        return str(error)
    return "nothing happened"


@pytest.mark.slow
def test_a_process_that_fails_leaves_its_reason() -> None:
    told, _ = together(2, fail_alone)
    assert told == "another of the 2 processes of this run ended: process 2: the disk is full"

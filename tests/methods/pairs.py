"""Methods of two networks on logits that a test chooses."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor, nn

from graphclean.training.method import Batch, Method
from graphclean.training.networks import Output

N, K = 40, 4


def start(method: Method, given: np.ndarray, *, epoch: int = 5, epochs: int = 10) -> Any:
    """A run in which half of an input is each network's logits; the method is set up in it."""
    run: Any = SimpleNamespace(given=torch.as_tensor(given), n_classes=K, device=torch.device("cpu"))
    run.epoch, run.settings = epoch, SimpleNamespace(epochs=epochs)
    run.batch_size, run.generator = len(given), torch.Generator().manual_seed(0)
    run.new_network = nn.Identity
    run.weak_view = lambda inputs: inputs
    run.shuffle = lambda: torch.arange(len(given)).view(1, -1)

    def forward(view: Tensor, network: str = "main") -> list[Output]:
        logits = view[:, :K] if network == "main" else view[:, K:]
        return [Output(logits, logits)]

    run.forward = forward
    method.setup(run)
    method.begin_epoch(run)
    return run


def draw(seed: int = 0, unlabeled: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Logits of both networks, and labels of which some are missing."""
    rng = np.random.default_rng(seed)
    given = rng.integers(0, K, N)
    given[:unlabeled] = -1
    return rng.normal(0, 2, (N, 2 * K)).astype(np.float32), given


def step(method: Method, run: Any, logits: np.ndarray | Tensor) -> dict[str, Tensor]:
    """Losses of all samples as one batch."""
    return method.losses(run, Batch(torch.arange(N), torch.as_tensor(logits), run.given))


def oracle_losses(logits: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """−log p of the given labels by each network, infinite without a label."""
    rows = np.arange(N)
    both = []
    for half in (logits[:, :K], logits[:, K:]):
        losses = -log_softmax(half.astype(np.float64), axis=1)[rows, given]
        both.append(np.where(given >= 0, losses, np.inf))
    return both[0], both[1]


def oracle_disagreement(logits: np.ndarray) -> np.ndarray:
    """Where the two predict different classes."""
    differ: np.ndarray = logits[:, :K].argmax(1) != logits[:, K:].argmax(1)
    return differ


def gradient(method: Method, run: Any, logits: np.ndarray) -> np.ndarray:
    """Of all losses by the logits of both networks."""
    leaf = torch.tensor(logits, requires_grad=True)
    torch.stack(list(step(method, run, leaf).values())).sum().backward()
    assert leaf.grad is not None
    found: np.ndarray = leaf.grad.numpy()
    return found

import pytest
import torch

from graphclean.config import TrainingSettings
from graphclean.training.schedule import learning_rate, phase_around


def test_each_phase_has_a_first_epoch_and_an_end() -> None:
    assert [phase_around(epoch, (0, 3), 5) for epoch in range(5)] == [(0, 3)] * 3 + [(3, 5)] * 2
    assert phase_around(4, (0,), 7) == (0, 7)
    assert phase_around(7, (0, 3), 7) == (3, 7), "after the end"
    assert phase_around(0, (0, 9), 5) == (0, 5), "a phase after the end has no part in it"


@pytest.mark.parametrize("epoch", [0, 0.5, 3, 9.75])
def test_the_cosine_is_that_of_pytorch(epoch: float) -> None:
    settings = TrainingSettings(lr=0.4, min_lr=0.02, lr_warmup_epochs=0)
    weights = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.02)
    for _ in range(round(4 * epoch)):
        optimizer.step()
        scheduler.step()
    assert learning_rate(settings, epoch, 10) == pytest.approx(scheduler.get_last_lr()[0])


def test_a_ramp_leads_to_the_cosine() -> None:
    settings = TrainingSettings(lr=0.4, min_lr=0.0, lr_warmup_epochs=4)
    flat = TrainingSettings(lr=0.4, min_lr=0.0, lr_warmup_epochs=0)
    assert learning_rate(settings, 0, 10) == pytest.approx(0.4 / 1000)
    assert learning_rate(settings, 1, 10) == pytest.approx(learning_rate(flat, 1, 10) / 4)
    assert learning_rate(settings, 4, 10) == learning_rate(flat, 4, 10)

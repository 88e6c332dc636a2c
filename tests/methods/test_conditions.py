"""What data may be like: every method of the registry trains on it, and gives what every method must."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphclean.config import TrainingSettings
from graphclean.methods import load_method, method_names
from graphclean.methods.mixup import Mixup
from graphclean.training import EpochReport, InterruptedRun, Trained, Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch, Method, Prior, TrainerContext, Trusted
from tests.methods.test_registry import EVERY_PART, build, trusted_samples
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT = TrainingSettings(
    network="small-conv", epochs=3, batch_size=8, lr=0.05, crop_padding=1, horizontal_flip=False
)
N, K = 16, 8
EVERY = [*method_names(), EVERY_PART]
ONE_VIEW = "mixup", {"mixup_alpha": 0.0}
"""Cross-entropy of one view, and what is off in each method that then equals it or another one."""
LIMITS: list[tuple[str, dict[str, Any], tuple[str, dict[str, Any]]]] = [
    ("elr", {"lambda_elr": 0.0}, ONE_VIEW),
    ("ilon", {"warmup_fraction": 1.0}, ONE_VIEW),
    ("co-teaching", {"noise_rate": 0.0}, ONE_VIEW),
    (
        "co-teaching-plus",
        {"noise_rate": 0.3, "disagreement_from": 1.0},
        ("co-teaching", {"noise_rate": 0.3}),
    ),
    ("decoupling", {"warmup_epochs": 3}, ONE_VIEW),
    (
        "mentornet-pd",
        {"loss_percentile": 1.0, "percentile_decay": 0.0, "burn_in_dropout": 0.0, "dropout": 0.0},
        ONE_VIEW,
    ),
    (
        "mentornet-dd",
        {"noise_rate": 0.3, "burn_in": 1.0, "burn_in_dropout": 0.0, "final_dropout": 0.0},
        ONE_VIEW,
    ),
    ("dividemix-1", {"warmup_epochs": 3}, ONE_VIEW),
    ("pencil", {"classify_until": 1.0, "correct_until": 1.0}, ONE_VIEW),
    ("d2l", {"warmup_fraction": 1.0}, ONE_VIEW),
    ("m-correction", {"correct_from": 1.0}, ("mixup", {"mixup_alpha": 32.0})),
]


def make(
    method: Method,
    labels: Tensor,
    n_classes: int = K,
    checkpoint: Path | None = None,
    settings: TrainingSettings = SHORT,
) -> Trainer:
    """On as many digits as there are labels."""
    pixels, _, _ = digits(len(labels))
    prior = None
    if "verdicts" in method.info.needs:
        shape = len(labels), n_classes + 1
        posterior = torch.rand(shape, generator=torch.Generator().manual_seed(1)).softmax(1)
        prior = Prior(posterior, torch.arange(len(labels)) % 3 > 0)
    lent: dict[str, Any] = {"prior": prior, "trusted": trusted_samples(method, n_classes)}
    return Trainer(ResidentInputs(pixels), labels, n_classes, settings, method, checkpoint=checkpoint, **lent)


def given(n: int = N, n_classes: int = K) -> Tensor:
    """Labels as noisy as they come."""
    return torch.randint(0, n_classes, (n,), generator=torch.Generator().manual_seed(0))


def one_label() -> Tensor:
    """Only one sample has a label, so most batches have none, and next to nothing can be selected."""
    labels = torch.full((N,), -1)
    labels[3] = 2
    return labels


CONDITIONS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "two classes": (lambda: given(n_classes=2), 2),
    "fewer samples than a batch": (lambda: given(5), K),
    "an empty class": (lambda: given().where(given() != 3, 4), K),
    "one class alone": (lambda: torch.full((N,), 1), K),
    "one label": (one_label, K),
    "a label in two": (lambda: given().where(torch.arange(N) % 2 > 0, -1), K),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", EVERY)
def test_it_trains_and_says_what_it_took_samples_for(name: str, condition: str) -> None:
    labels, n_classes = CONDITIONS[condition][0](), CONDITIONS[condition][1]
    reports: list[EpochReport] = []
    made = make(build(name), labels, n_classes)
    trained = made.train(on_epoch=lambda report, _: reports.append(report))
    assert len(reports) == SHORT.epochs
    for report in reports:
        assert all(map(torch.isfinite, map(torch.tensor, report.losses.values())))
        json.dumps(report.own)
        assert 0 <= report.relabeled <= report.selected <= len(labels)
    assert trained.logits.shape == (len(labels), n_classes)
    assert all(bool(weights.isfinite().all()) for weights in trained.network.state_dict().values())
    chosen = trained.selection
    assert chosen.labels.shape == chosen.selected.shape == (len(labels),)
    assert chosen.selected.dtype == torch.bool
    assert set(chosen.labels[chosen.selected].tolist()) <= set(range(n_classes))
    assert all(note == note.strip() and note for note in trained.notes)


@pytest.mark.parametrize("name", EVERY)
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    """From within an epoch; `test_registry` has every place where a run may end."""
    whole = make(build(name), given())
    expected = whole.train()
    with pytest.raises(InterruptedRun):
        make(build(name, stop=(1, 0)), given(), checkpoint=tmp_path).train()
    resumed = make(build(name), given(), checkpoint=tmp_path)
    found = resumed.train(resume=True)
    assert torch.equal(found.logits, expected.logits)
    states = resumed.method.save_state(), whole.method.save_state()
    torch.testing.assert_close(*states, atol=0, rtol=0)


@pytest.mark.parametrize("name", method_names())
def test_it_trains_on_embeddings_unless_it_needs_images(name: str) -> None:
    if "images" in load_method(name).info.needs:
        pytest.skip("refuses embeddings")
    method, pixels = build(name), digits(N)[0].flatten(1).float() / 64
    lent: dict[str, Any] = {}
    if "verdicts" in method.info.needs:
        lent["prior"] = Prior(torch.full((N, K + 1), 1 / (K + 1)), torch.arange(N) % 3 > 0)
    if "trusted samples" in method.info.needs:
        lent["trusted"] = Trusted(ResidentInputs(pixels[:9]), torch.arange(9) % K)
    settings = dataclasses.replace(SHORT, network="embedding-head", feature_noise_std=0.1)
    trained = Trainer(ResidentInputs(pixels), given(), K, settings, method, **lent).train()
    assert trained.logits.shape == (N, K)
    assert bool(trained.logits.isfinite().all())


class Leaky(Mixup):
    """Forgets the mask."""

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        return super().losses(run, dataclasses.replace(batch, given=batch.given.clamp(min=0)))


def taken_for_class_0(build: Callable[[], Method]) -> bool:
    """Whether samples without a label end up in class 0, nearly as if they had its label."""
    _, labels, _ = digits(60, noise=0)
    labels = labels.where(labels > 0, 1)
    unlabeled = torch.arange(len(labels)) % 2 == 0
    longer = dataclasses.replace(SHORT, epochs=6)
    shares = []
    for instead in (-1, 0):
        trained = make(build(), labels.where(~unlabeled, instead), settings=longer).train()
        shares.append(float(trained.logits.softmax(1)[:, 0].mean()))
    return shares[0] > 0.6 * shares[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_an_unlabeled_sample_is_of_no_class(name: str) -> None:
    """Not of class 0 either, for which a mask that is forgotten takes it."""
    if "verdicts" in load_method(name).info.needs:
        pytest.skip("its labels come from verdicts")
    assert not taken_for_class_0(lambda: build(name))


def test_a_forgotten_mask_is_noticed() -> None:
    assert taken_for_class_0(Leaky)


@pytest.mark.parametrize(("name", "settings", "limit"), LIMITS, ids=[limit[0] for limit in LIMITS])
def test_without_its_own_part_it_equals_another_method(
    name: str, settings: dict[str, Any], limit: tuple[str, dict[str, Any]]
) -> None:
    labels = given()
    labels[::7] = -1
    trained: list[Trained] = []
    for method, own in ((name, settings), limit):
        made = load_method(method)
        trained.append(make(made(made.Settings(**own)), labels).train())
    assert torch.equal(trained[0].logits, trained[1].logits)

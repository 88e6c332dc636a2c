"""`graphclean demo`: noisy digits, learned by plain cross-entropy and by NGC, and scored on the truth."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import replaced, write_json
from ..cleaning.inputs import encode_labels
from ..config import apply_settings, load_preset
from ..config.settings import PLAIN
from ..data.arrays import Pixels
from ..data.digits import noisy_digits
from ..distributed.group import current
from ..errors import arg
from ..methods import build_method, complete_settings
from ..metrics import auroc, score_open_set, score_verdicts
from ..training.fit import fit
from .callbacks import Watcher
from .folder import DIGITS, SCORES, check_target
from .inputs import Source
from .route import Route
from .schema import SourceRecord
from .train import TRAIN_SECTIONS, TrainingRun, train_source

DEMO_TRAINING = 1200
"""Number of digits to train on; the others are the test set."""


@dataclass(frozen=True)
class Demo:
    """The NGC run, facts about the data, and the scores of both methods."""

    run: TrainingRun
    facts: dict[str, int]
    scores: dict[str, Any]
    """`ce` and `ngc` on the test digits, `verdicts` on the training digits."""


def demo(
    out: Path,
    *,
    settings: Sequence[str] = (),
    seed: int = 0,
    overwrite: bool = False,
    watcher: Watcher | None = None,
) -> Demo:
    """Train both ways on 1,200 noisy digits; score predictions on the others, and verdicts on all 1,200.

    This runs on one thread: batches of 64 digits are too small for more, and if the machine is busy, two
    threads wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _demo(out, settings, seed, overwrite, watcher if watcher is not None else Watcher())
    finally:
        torch.set_num_threads(threads)


def _demo(out: Path, settings: Sequence[str], seed: int, overwrite: bool, watcher: Watcher) -> Demo:
    if current().leads:
        check_target(out, overwrite=overwrite)
    config = complete_settings(
        apply_settings(load_preset("demo"), [f"training.seed={seed}", *settings], TRAIN_SECTIONS)
    )
    digits = noisy_digits(seed=seed)
    order = np.random.default_rng(seed).permutation(len(digits.labels))
    train, test = order[:DEMO_TRAINING], order[DEMO_TRAINING:]
    truth = np.where(digits.is_ood, -1, digits.truth)
    known = ~digits.is_ood[train]
    facts = {
        "samples": len(train),
        "known": int(known.sum()),
        "wrong": int((digits.labels != digits.truth)[train][known].sum()),
        "ood": int((~known).sum()),
        "test_known": int((truth[test] >= 0).sum()),
        "test_ood": int((truth[test] < 0).sum()),
    }
    images, labels = digits.images[train], digits.labels[train]
    source = Source(images, labels, pixels=Pixels("bytes", 0, 255))
    plain_config = apply_settings(config, PLAIN)
    plain = fit(
        images,
        encode_labels(labels),
        plain_config,
        build_method(plain_config),
        on_epoch=lambda report, _: watcher.stage("plain cross-entropy", report.epoch, config.training.epochs),
    )
    run = train_source(
        source,
        out,
        config,
        route=Route("demo"),
        described=SourceRecord(data=DIGITS, seed=seed) | source.describe(),
        device="cpu",
        overwrite=overwrite,
        again=f"{arg('overwrite')} starts again",
        watcher=watcher,
    )
    by_ce, by_ngc = plain.predict(digits.images[test]), run.result.predict(digits.images[test])
    right = by_ce.classes == truth[test]
    open_set = score_open_set(by_ngc.classes, by_ngc.ood_score, truth[test], run.result.model.threshold)
    scores = {
        "ce": {
            "accuracy": float(right[truth[test] >= 0].mean()),
            "auroc": auroc(-by_ce.probability, truth[test] < 0),
            "seconds": plain.seconds,
        },
        "ngc": {**asdict(open_set), "seconds": run.summary["training"]["seconds"]},
        "verdicts": asdict(
            score_verdicts(run.result.cleaning.verdicts, digits.truth[train], digits.is_ood[train])
        ),
    }
    with replaced(out / DIGITS) as draft, draft.open("wb") as file:
        np.savez(file, images=images, labels=labels)
    write_json(out / SCORES, {"facts": facts, **scores})
    return Demo(run, facts, scores)

"""A training job on arrays: from noisy digits to verdicts, a threshold and predictions."""

import numpy as np
import torch

from graphclean.audit.inputs import encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.evaluate import score_verdicts
from graphclean.evaluate.openset import score_open_set
from graphclean.training import fit


def test_noisy_digits_end_to_end() -> None:
    torch.set_num_threads(1)
    digits = noisy_digits(noise=0.4, seed=7)
    pixels = digits.images
    truth = np.where(digits.is_ood, -1, digits.truth)
    train, test = np.arange(1200), np.arange(1200, len(truth))
    config = apply_settings(load_preset("demo"), ["learn.epochs=12"])
    epochs: list[int] = []
    result = fit(
        pixels[train], encode_labels(digits.labels[train]), config, watch=lambda r, _: epochs.append(r.epoch)
    )
    assert epochs == list(range(1, 13))
    scores = score_verdicts(result.audit.verdicts, digits.truth[train], digits.is_ood[train])
    assert scores.labels_right > 0.95
    assert scores.ood_auroc > 0.9
    table = result.audit.verdicts
    assert table.selected.to_numpy().tolist() == result.trained.cleaned.selected.tolist()
    assert result.audit.summary.selected == table.selected.sum()
    new = result.predict(pixels[test])
    open_set = score_open_set(new.classes, new.similarity, truth[test], result.model.threshold.zeta)
    assert open_set.accuracy > 0.93
    assert open_set.auroc > 0.85
    assert 0 < result.model.threshold.zeta < 1
    assert new.probability.max() <= 1
    assert result.seconds > 0

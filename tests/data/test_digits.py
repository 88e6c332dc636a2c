import numpy as np

from graphclean.data.digits import KNOWN, noisy_digits


def test_half_of_the_known_labels_are_resampled() -> None:
    digits = noisy_digits(seed=3)
    known = ~digits.is_ood
    assert set(digits.labels) == set(range(KNOWN))
    wrong = (digits.labels != digits.truth)[known].mean()
    assert 0.5 * 7 / 8 - 0.03 < wrong < 0.5 * 7 / 8 + 0.03  # one in eight draws is the true label
    assert digits.is_ood.sum() == np.isin(digits.truth, (8, 9)).sum() == 354
    counts = np.bincount(digits.labels[digits.is_ood], minlength=KNOWN)
    assert counts.min() > 354 / KNOWN * 0.5


def test_seeded() -> None:
    assert (noisy_digits(seed=1).labels == noisy_digits(seed=1).labels).all()
    assert (noisy_digits(seed=1).labels != noisy_digits(seed=2).labels).any()
    assert (noisy_digits(noise=0.0).labels == noisy_digits().truth)[~noisy_digits().is_ood].all()

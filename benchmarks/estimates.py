"""Compare the estimates of `clean` with the truth: how many verdicts are right, and the OOD rate.

python benchmarks/estimates.py --data-root DATA     five minutes, and as long again for features
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from audit import embed_cifar, noisy
from audit_sets import Draw, further_draws
from common import RESULTS, feature_options, parse_feature_options, save
from detectors import TRAINED_ON, feature_sets
from graphclean.cleaning import infer_verdicts

Array = np.ndarray
OOD_RATES = (0.0, 0.07, 0.2)
"""OOD samples per known sample."""
NOISE = (("sym", 0.1), ("sym", 0.3), ("pair", 0.3))
SEEDS = range(2)


def draws(root: Path, cache: Path) -> Iterator[Draw]:
    """Digits, CIFAR-10 and TinyImageNet with some classes as OOD, and the further sets except the pairs."""
    for group, (z, classes, unknown) in feature_sets(root, cache).items():
        for ood in OOD_RATES:
            for kind, rate in NOISE:
                for seed in SEEDS:
                    name = f"{100 * ood:g} % OOD, {kind} {100 * rate:g} %, seed {seed}"
                    yield make_draw(group, name, z, classes, unknown[seed], seed, (kind, rate), ood)
    yield from further_draws(embed_cifar(root, cache / "cifar.npz"), None)


def make_draw(
    group: str,
    name: str,
    z: Array,
    classes: Array,
    unknown: Any,
    seed: int,
    noise: tuple[str, float],
    ood: float,
) -> Draw:
    """Known samples with noisy labels, and `ood` times as many of the unknown classes."""
    rng = np.random.default_rng(seed)
    is_unknown = np.isin(classes, unknown)
    truth = np.unique(np.where(is_unknown, -1, classes), return_inverse=True)[1] - 1
    known, other = (rng.permutation(np.flatnonzero(mask)) for mask in (~is_unknown, is_unknown))
    count = round(TRAINED_ON * len(known))
    rows = np.concatenate([known[:count], other[: round(ood * count)]])
    labels = noisy(truth[rows], *noise, seed, truth.max() + 1)
    return Draw(group, name, z[rows], labels, truth[rows])


def compare(draw: Draw) -> dict[str, Any]:
    """The estimates for one draw and the truth; estimates that are not reported are None."""
    cleaning = infer_verdicts(draw.features, draw.labels)
    verdict, proposed = (cleaning.verdicts[name].to_numpy() for name in ("verdict", "proposed_label"))
    right = {"keep": draw.truth == draw.labels, "relabel": draw.truth == proposed, "ood": draw.truth < 0}
    verdicts = {
        name: {
            "count": int((verdict == name).sum()),
            "estimated": cleaning.summary.expected_right.get(name),
            "right": float(is_right[verdict == name].mean()),
        }
        for name, is_right in right.items()
        if (verdict == name).any()
    }
    rate = {"estimated": cleaning.summary.ood_rate, "true": float((draw.truth < 0).mean())}
    return {"group": draw.group, "draw": draw.name, "verdicts": verdicts, "ood_rate": rate}


def main() -> None:
    args, root = parse_feature_options(feature_options(__doc__, threads=1))
    rows = []
    for draw in draws(root, args.cache):
        rows.append(compare(draw))
        print(rows[-1], flush=True)
    print(save("estimates", {"draws": rows}, RESULTS))


if __name__ == "__main__":
    main()

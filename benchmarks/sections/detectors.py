"""What is rejected of new features."""

from typing import Any

import numpy as np

from common import describe, shown, when
from graphclean.bench.markdown import markdown_table


def detectors_section(result: dict[str, Any]) -> str:
    """A row for each set, noise and way: means over the splits, and the range of what was promised."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for split in result["splits"]:
        name = "30 % wrong" if split["name"].startswith("seed") else split["name"]
        groups.setdefault((split["group"], name), []).append(split)
    rows = []
    for (group, name), splits in groups.items():
        ways = [way for way, found in splits[0].items() if isinstance(found, dict)]
        for way in ways:
            found = [split[way] for split in splits]
            good = [row["good_rejected"] for row in found]
            learned = sum(row["expected_unknown_rejected"] is not None for row in found)
            rows.append(
                [
                    f"{group}; {name} ({len(splits)})" if way == ways[0] else "",
                    ", ".join(f"`{part}`" for part in way.split(", ")),
                    f"{np.mean([row['auroc'] for row in found]):.3f}",
                    f"{100 * np.mean([row['unknown_rejected'] for row in found]):.1f} %",
                    f"{100 * np.mean(good):.1f} % ({100 * min(good):.1f} to {100 * max(good):.1f})",
                    f"{100 * found[0]['promised']:g} %" if found[0]["promised"] is not None else "unknown",
                    str(min(row["good"] for row in found)),
                    f"{learned} of {len(found)}",
                ]
            )
    columns = [
        "set (splits)", "", "AUROC", "unknown rejected", "good inputs rejected (range)", "target",
        "good inputs held out", "learned from OOD samples",
    ]  # fmt: skip
    scorings = [when(entry["machine"]) for entry in result["photo_scorings"]]
    return f"""## New inputs, rejected or not

{shown("bench-detectors", "Unknown and good inputs rejected by clean on each set, in percent, with the target of 5 % for good inputs")}
The [detector on features](verdicts.md#new-data) at the threshold that it finds by itself. Each set has three splits: some
classes are unknown, 60 % of the samples of the others are trained on, and the rest are held out as good new inputs. Digits
are raw pixels; training images of CIFAR-10 and TinyImageNet are features of EfficientNet-Lite0, a network for photos ten
times as large, to which unknown animals and vehicles look much like known ones. With OOD in training, samples of the unknown
classes, a fifth as many as of the known ones, join the training set under random labels; other samples of these classes are
the unknown inputs. `train` rejects by the posterior with class means. A network trained on images can't calibrate a threshold
on its own training samples: without trusted samples (`--validation`, here 200 of those held out) it has no target. Of the
photos, 300 of the known classes and 150 scenes are new; without OOD in training, another 400 of the 1,200 training photos are
held out. Every scoring of the photos: {"; ".join(scorings) or "–"}.

{markdown_table(columns, rows)}

{describe(result)}
"""

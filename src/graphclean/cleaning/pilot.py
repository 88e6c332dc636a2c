"""On large sets, k, the scaling and the classifier are chosen on a sample, with its own graph."""

from dataclasses import replace

from ..config import CleaningSettings
from ..data.progress import Progress
from .choice import choose_nodes
from .class_means import Whitening
from .classifier import class_means_help
from .evidence import Copies
from .inputs import Floats, Labels, as_float32
from .scale import chosen_on


def choose_on_sample(
    array: Floats,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> tuple[CleaningSettings, dict[int, float]]:
    """The settings with one k, scaling and classifier, and the log-likelihood for each k tried.

    The k nearest of a sample are farther away than the k nearest of all, so that the k that is best there is
    rather too small than too large for the whole set.
    """
    asked = len(settings.k) > 1, settings.scaling == "auto", settings.classifier == "auto"
    if not any(asked):
        return settings, {}
    rows = copies.first[chosen_on(len(copies.first))]
    some, z = labels.take(rows), as_float32(array[rows])
    alone, pilot = Copies.none(len(rows)), replace(settings, search="exact", near_duplicates=False)
    scaling, _, nodes, fitted = choose_nodes(
        z, alone, some, pilot, [], lambda *_: tell("choosing on a sample", 0, 1)
    )
    settings = replace(settings, scaling=scaling)
    if fitted.propagated is None or fitted.model is None or nodes.near is None:
        return replace(settings, classifier="knn"), fitted.tried
    if settings.classifier == "auto":
        helped = class_means_help(
            nodes.unit, nodes.near, fitted.propagated, some, fitted.model, Whitening.fit(nodes.unit)
        )
        settings = replace(settings, classifier="knn+class-means" if helped else "knn")
    names = [name for name, was in zip(("k", "scaling", "classifier"), asked, strict=True) if was]
    notes.append(f"chosen on {len(rows)} of {len(labels.codes)} samples: {', '.join(names)}")
    return replace(settings, k=(fitted.propagated.k,)), fitted.tried

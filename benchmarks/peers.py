"""Other cleaners on the same features: flags, proposals and rankings."""

import importlib.util
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler, normalize

from audit_sets import Draw

Array = np.ndarray
C_DEFAULT, FURTHER_C_VALUES = 1.0, (1e-3, 1e-2)
"""Values of C of the logistic regression: scikit-learn's default, and where its log-loss is lowest on these
features.
"""
FOLDS = 5
FURTHER_COLUMNS = ("mislabel_f1", "issue_f1", "label_accuracy", "ranking", "ood_auroc", "false_flags")


@dataclass(frozen=True)
class Found:
    """The output of one cleaner for a noisy set; None for what it doesn't provide."""

    mislabeled: Array | None = None
    proposed: Array | None = None
    ood: Array | None = None
    suspicion: Array | None = None
    """Larger means that the label is more likely wrong."""
    ood_score: Array | None = None


def score(draw: Draw, found: Found) -> dict[str, float]:
    """All scores that can be computed from the output."""
    truth, known, wrong = draw.truth, draw.truth >= 0, draw.truth != draw.labels
    scores: dict[str, float] = {}
    if found.mislabeled is not None:
        flagged = found.mislabeled | found.ood if found.ood is not None else found.mislabeled
        scores["false_flags"] = float(flagged[~wrong].mean())
        if wrong.any():
            scores["issue_f1"] = float(f1_score(wrong, flagged))
        if wrong[known].any():
            scores["mislabel_f1"] = float(f1_score(wrong[known], found.mislabeled[known]))
        if found.proposed is not None:
            label = np.where(found.mislabeled, found.proposed, draw.labels)
            scores["label_accuracy"] = float((label == truth)[known].mean())
    if found.suspicion is not None and wrong[known].any():
        scores["ranking"] = float(average_precision_score(wrong[known], found.suspicion[known]))
    if found.ood_score is not None and not known.all():
        scores["ood_auroc"] = float(roc_auc_score(~known, found.ood_score))
    return scores


def foretell(draw: Draw, C: float) -> Array | None:
    """Out-of-sample probabilities by logistic regression; None if a class is too small for the folds."""
    if np.bincount(draw.labels).min() < FOLDS:
        return None
    z = StandardScaler().fit_transform(draw.features)
    model = LogisticRegression(C=C, max_iter=300)
    return np.asarray(cross_val_predict(model, z, draw.labels, cv=FOLDS, method="predict_proba"))


def ask_peers(draw: Draw) -> dict[str, dict[str, float]]:
    """The scores of every installed peer."""
    peers = {"selfclean": score(draw, Found(suspicion=distance_ratio(draw)))}
    if importlib.util.find_spec("cleanlab") is not None:
        peers |= ask_cleanlab(draw)
    if importlib.util.find_spec("dataeval") is not None:
        peers["dataeval"] = ask_dataeval(draw)
    return peers


def ask_cleanlab(draw: Draw) -> dict[str, dict[str, float]]:
    """cleanlab with scikit-learn's C = 1; with the best C and filter for each column by the truth; and
    Datalab.
    """
    from cleanlab import Datalab
    from cleanlab.filter import find_label_issues
    from cleanlab.outlier import OutOfDistribution
    from cleanlab.rank import get_label_quality_scores

    standard = StandardScaler().fit_transform(draw.features)
    outlier = -OutOfDistribution().fit_score(features=standard, verbose=False)
    tried: list[dict[str, float]] = []
    default: dict[str, float] = {}
    likely: tuple[float, Array] | None = None
    for C in (C_DEFAULT, *FURTHER_C_VALUES):
        p = foretell(draw, C)
        if p is None:
            return {}
        if likely is None or log_loss(draw.labels, p) < likely[0]:
            likely = float(log_loss(draw.labels, p)), p
        suspicion = -get_label_quality_scores(draw.labels, p)
        for way in ("prune_by_noise_rate", "predicted_neq_given"):
            flag = find_label_issues(draw.labels, p, filter_by=way, n_jobs=1)
            scores = score(draw, Found(flag, p.argmax(1), None, suspicion, outlier))
            default = default or scores
            tried.append(scores)
    assert likely is not None
    best = {c: max(row[c] for row in tried) for c in tried[0] if c != "false_flags"}
    lab = Datalab(data={"label": draw.labels}, label_name="label", verbosity=0)
    lab.find_issues(features=standard, pred_probs=likely[1], issue_types={"label": {}, "outlier": {}})
    issues, labels = lab.get_issues(), lab.get_issues("label")
    found = Found(
        issues.is_label_issue.to_numpy(),
        labels.predicted_label.to_numpy(),
        issues.is_outlier_issue.to_numpy(),
        -labels.label_score.to_numpy(),
        -issues.outlier_score.to_numpy(),
    )
    return {"cleanlab": default, "cleanlab_best": best, "datalab": score(draw, found)}


def ask_dataeval(draw: Draw) -> dict[str, float]:
    """DataEval's ratio of class distances, flagged from 1 on, and its first proposal."""
    from dataeval.core import label_errors

    standard = StandardScaler().fit_transform(draw.features)
    found = label_errors(standard, draw.labels, k=min(50, int(np.bincount(draw.labels).min()) - 1))
    mislabeled, proposed = np.zeros(len(draw.labels), dtype=bool), draw.labels.copy()
    for row, (_, others) in found["errors"].items():
        mislabeled[row], proposed[row] = True, others[0] if len(others) else draw.labels[row]
    return score(draw, Found(mislabeled, proposed, None, np.asarray(found["scores"])))


def distance_ratio(draw: Draw) -> Array:
    """SelfClean's label-error score, reimplemented from its paper: d_same² / (d_same² + d_other²), where d is
    the cosine distance to the nearest sample with the same or another label.

    It only ranks: users decide which labels to flag and how to correct them.
    """
    unit = normalize(StandardScaler().fit_transform(draw.features))
    distance = 1 - unit @ unit.T
    np.fill_diagonal(distance, np.inf)
    same = draw.labels[:, None] == draw.labels
    near, far = (np.where(rows, distance, np.inf).min(1) ** 2 for rows in (same, ~same))
    return np.asarray(np.where(np.isfinite(near), near / (near + far), 1.0))

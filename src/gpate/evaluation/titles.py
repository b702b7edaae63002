"""Names of scores for readers: on the terminal and on the page.

>>> title("auroc"), title("nearer_to_train")
('AUROC', 'nearer to train')
"""

from __future__ import annotations

TITLES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "f1": "F1",
    "fid": "FID",
    "fid-classifier": "FID, by a classifier",
    "reference_accuracy": "accuracy of the reference classifier",
    "judge_accuracy": "accuracy of the reference classifier",  # until 0.2.0
    "inception_score": "Inception Score",
    "copy_share": "copies",
    "nn_distance_ratio": "nearest neighbour ratio",
    "k-marginal score": "k-marginal score (NIST, of 1000)",
}


def title(metric: str) -> str:
    """The name of a metric; one that is not listed is shown as it is, with spaces."""
    return TITLES.get(metric.lower(), metric.replace("_", " "))

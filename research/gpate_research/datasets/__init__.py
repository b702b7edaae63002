"""The paper's benchmark sets and UCI Adult, a plug-in of gpate: MNIST, Fashion-MNIST, CelebA, Kaggle Credit, Adult.

They are looked up in the folder that `GPATE_DATA` names, then in the cache (`GPATE_CACHE`), and then fetched from OpenML
where it has them.

    >>> list(DATASETS)[:2]
    ['mnist', 'fashion-mnist']
"""

from gpate.datasets import Dataset
from gpate_research.datasets import adult_and_credit, celeba, mnist

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (*mnist.DATASETS, *celeba.DATASETS, *adult_and_credit.DATASETS)
}

__all__ = ["DATASETS"]

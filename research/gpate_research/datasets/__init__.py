"""The paper's benchmark sets, CIFAR-10 and UCI Adult, a plug-in of gpate: MNIST, Fashion-MNIST, CelebA, Kaggle Credit among them.

They are looked up in the folder that `GPATE_DATA` names, then in the cache (`GPATE_CACHE`), and then fetched from OpenML
where it has them.

    >>> list(DATASETS)[:2]
    ['mnist', 'fashion-mnist']
"""

from gpate.datasets import Dataset
from gpate_research.datasets import adult_and_credit, celeba, cifar10, mnist

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (*mnist.DATASETS, *celeba.DATASETS, *cifar10.DATASETS, *adult_and_credit.DATASETS)
}

__all__ = ["DATASETS"]

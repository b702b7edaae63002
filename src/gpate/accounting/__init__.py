"""Privacy accounting: events, ledger, accountants, calibration, the budget book of a data set. No tensors and no data."""

from gpate.accounting.accountants import ACCOUNTANTS, Accountant, Tally, accountant_for, accountant_named, tally
from gpate.accounting.book_file import BookContents, BookEntry, BookPosition
from gpate.accounting.budget import Budget
from gpate.accounting.budget_book import BudgetBook, new_run
from gpate.accounting.calibration import calibrate
from gpate.accounting.discrete import grid_for
from gpate.accounting.events import (
    DiscreteGaussian,
    Event,
    Gaussian,
    GNMax,
    GroupedGNMax,
    Laplace,
    NoisyMaxThreshold,
    NonPrivate,
    OneOfManyGaussian,
    PoissonSampledGaussian,
    SmoothGaussian,
    StableHistogram,
)
from gpate.accounting.ledger import Header, Ledger, LedgerContents, Receipt, never_used, parse_ledger, read_ledger

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "BookContents",
    "BookEntry",
    "BookPosition",
    "Budget",
    "BudgetBook",
    "DiscreteGaussian",
    "Event",
    "GNMax",
    "Gaussian",
    "GroupedGNMax",
    "Header",
    "Laplace",
    "Ledger",
    "LedgerContents",
    "NoisyMaxThreshold",
    "NonPrivate",
    "OneOfManyGaussian",
    "PoissonSampledGaussian",
    "Receipt",
    "SmoothGaussian",
    "StableHistogram",
    "Tally",
    "accountant_for",
    "accountant_named",
    "calibrate",
    "grid_for",
    "never_used",
    "new_run",
    "parse_ledger",
    "read_ledger",
    "tally",
]

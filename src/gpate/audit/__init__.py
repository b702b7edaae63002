"""Audits of the guarantee: many runs on neighbouring data sets, and the lower bound on epsilon that they prove."""

from gpate.audit.bounds import Found, lower_bounds
from gpate.audit.canaries import OneRun, one_run, takes_canaries
from gpate.audit.cases import Case, FileCase, WorstCase, blank_images, blank_table
from gpate.audit.game import Audit, RecipeGame, play
from gpate.audit.noise_check import NoiseCheck, noise_checks
from gpate.audit.voting_game import VotingGame

__all__ = [
    "Audit",
    "Case",
    "FileCase",
    "Found",
    "NoiseCheck",
    "OneRun",
    "RecipeGame",
    "VotingGame",
    "WorstCase",
    "blank_images",
    "blank_table",
    "lower_bounds",
    "noise_checks",
    "one_run",
    "play",
    "takes_canaries",
]

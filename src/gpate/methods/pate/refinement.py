"""The paper's idea on top of an embedding: teachers vote on a student that knows its subject already.

    the embedding, with a part of the budget          (gpate.methods.embedding.method)
    teachers learn to tell their records from the student's, as long as one likes: nothing is released
    teachers vote, the student follows, until the budget is spent          (Algorithms 1 and 2)

A vote moves a few records by a little, so the student's step is small: Adam's steps have the size of its learning rate
however uncertain the vote was. Its normalisation statistics stay fixed meanwhile, for what is voted on should be what is
released.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpate.errors import InvalidValue, require_count, require_positive


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """Settings of the votes on a trained student.

    Attributes:
        vote_share: of the budget (of its mu^2), kept for the votes.
        student_rate: the student's learning rate.
        warm_up: steps of the teachers before the first vote.
    """

    vote_share: float = 0.3
    student_rate: float = 2e-5
    warm_up: int = 100

    def __post_init__(self) -> None:
        if not 0.0 < self.vote_share < 1.0:
            raise InvalidValue("vote_share", self.vote_share, "strictly between 0 and 1")
        require_positive("student_rate", self.student_rate)
        require_count("warm_up", self.warm_up, 0)

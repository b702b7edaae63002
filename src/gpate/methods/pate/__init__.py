"""The paper's method: teachers vote on how the generator should change."""

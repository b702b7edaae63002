"""Teachers: discriminators that have seen private records. What they know leaves as `Sensitive`, or not at all."""

"""A run on disk: its folder, the transcript of what the gate answered, checkpoints and progress."""

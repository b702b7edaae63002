"""Images from sums of public features."""

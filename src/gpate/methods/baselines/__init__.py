"""Other authors' systems, under the same accounting."""

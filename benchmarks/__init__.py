"""Speed, measured: each module prints a table and keeps it as JSON in results/."""

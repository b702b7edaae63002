"""The paper's tables beside ours: which cells there are, running them, and showing what was run.

    gpate reproduce list
    gpate reproduce run table1c --cell '*/mnist/*' --seeds 3 --device cuda
    gpate reproduce show --write research/results

`paper_tables` holds the paper's figures and `cells` what stands beside each; `units`, `tasks` and `run_units` fit and evaluate,
`results_file` keeps; `compare`, `results_plots` and `results_page` show.
"""

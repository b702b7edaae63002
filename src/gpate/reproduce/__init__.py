"""The paper's tables beside ours: which cells there are, running them, and showing what was run.

    gpate reproduce list
    gpate reproduce run table1c --cell '*/mnist/*' --seeds 3 --device cuda
    gpate reproduce show --write docs

`paper` holds the paper's figures and `cells` what stands beside each; `units`, `tasks` and `run` fit and judge, `store` keeps; `compare`,
`plots` and `page` show.
"""

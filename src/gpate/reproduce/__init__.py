"""The paper's tables beside ours: which cells there are, running them, and showing what was run.

    gpate reproduce list
    gpate reproduce run table1c --cell '*/mnist/*' --seeds 3 --device cuda
    gpate reproduce show --write docs

`paper` holds the paper's figures, `cells` what stands beside each, `run` fits and judges, `store` keeps, `show` compares.
"""

"""Beside others: what peers and we ask of the same store for the same session.

    python -m benchmarks peers [--dir DIR] [--lengths 10,100,500] [--only NAME,…] [--report FILE]

    environments.py   each peer in a venv of its own, at the versions named there
    proxy.py          between every client and the store: counts, and makes each request take longer
    child.py          a process that runs one peer: opens, boots, answers turns, on command
    strands_, langgraph_, openai_, eventsourcing_, ours.py   the drivers: how one peer is used
    measure.py        who does what when, and what it cost
    report.py         the tables, the targets, the page (plot.py: its picture, in a venv that has matplotlib)

A peer is run as its own documentation has it: by its own agent loop or graph, with a model that answers at
once. What it asks of the store is counted outside of it, by the proxy, so that all of them, and all of our
drivers, are counted alike. Every peer is a process that stays; those whose times are compared act in turn,
one at a time, all of them once and then all of them again, so a machine that is slow for a while slows them
all.
"""

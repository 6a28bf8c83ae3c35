"""Load: what the engine takes, and what it holds, when there is much of everything.

    crowd     many sessions streaming at once in one process, by threads and by tasks, each killed and resumed
    soak      minutes of work in one process, with deaths and fences: what stays behind
    long      one session of very many turns
    records   logs of very many records, read without a snapshot
    gauge     memory, threads, open files and connections of this process (Linux)
    handle    a bucket that is metered, and in which a session's worker can die

Each part runs in processes of its own (`gauge.isolated`), so that no part's memory is counted with another's.
"""

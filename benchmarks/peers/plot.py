"""The report's picture. Run where matplotlib is: `python plot.py FILE.svg < rows.json`.

Two panels by length of the session, both axes logarithmic: milliseconds of a boot, kB that a turn sends.
"""

from __future__ import annotations

import json
import sys

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

_PANELS = {"boot": "boot, ms, 25 ms added to each request", "sent": "a turn, kB sent to the store"}


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "peers"  # the same numbers, the same file
    rows = json.load(sys.stdin)
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    keys = list(dict.fromkeys(row["key"] for row in rows))
    for panel, (what, title) in zip(panels, _PANELS.items(), strict=True):
        for at, key in enumerate(keys):
            own = [row for row in rows if row["key"] == key]
            style = {"linewidth": 2.4} if own[0]["ours"] else {"linewidth": 1.2, "linestyle": "--"}
            xs, ys = [row["turns"] for row in own], [row[what] for row in own]
            panel.plot(
                xs,
                ys,
                marker="o",
                markersize=4,
                color=f"C{at % 10}",
                label=own[0]["label"].replace("`", ""),
                **style,
            )
        panel.set(xscale="log", yscale="log", xlabel="turns", title=title)
        panel.grid(visible=True, which="major", alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()

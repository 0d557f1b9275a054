"""Weak scaling on paper: `python benchmarks/scaling.py docs/scaling.png`. The figures are stated in `docs/scaling.md`."""

import sys

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402

WORKLOADS = {"MNIST": (30e-6, 4 * (784 * 10 + 10 + 1)), "MovieLens 1M": (300e-6, 4 * (3706 * 21 + 1))}
NETWORKS = {"within a pod": (45e9, 1e-6), "between hosts": (12.5e9, 10e-6)}


def seconds(size, devices, bandwidth, latency):
    """Return the time of one all-reduce: the better of a ring and a tree."""
    moved = 2 * (devices - 1) / devices * size / bandwidth
    return moved + latency * np.minimum(2 * (devices - 1), 2 * np.ceil(np.log2(devices)))


def main(path):
    devices = 2 ** np.arange(3, 10)
    figure, axis = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
    for i, (name, (compute, size)) in enumerate(WORKLOADS.items()):
        for style, (place, network) in zip(("-", "--"), NETWORKS.items(), strict=True):
            share = compute / (compute + seconds(size, devices, *network))
            axis.plot(devices, share, style, marker="o", color=f"C{i}", label=f"{name}, {place}")
            print(name, place, dict(zip(devices.tolist(), np.round(share, 2).tolist(), strict=True)))
    axis.set(xscale="log", xlabel="devices, rows in proportion", ylabel="part of the time that computes", ylim=(0, 1))
    axis.set_xticks(devices, [str(n) for n in devices])
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "scaling.png")

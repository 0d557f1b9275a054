"""`python -m ppl`: eight schools, from data to a table and a picture.

python -m ppl                  sample, print the table, save eight_schools.png in this folder
python -m ppl summary FILE     print the table of a saved result
python -m ppl --version
"""

import argparse
import sys
from pathlib import Path

from ppl.errors import DataError, FormatError, ModelError, StartError


def schools(sigma):
    """Each school's coaching has an effect; the effects vary around a common one."""
    from ppl import HalfNormal, Normal

    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")
    return {"effect": theta - mu}


def demo(arguments):
    """Sample eight schools; print a table and the path of a picture."""
    import ppl
    from ppl.data import SCHOOLS, eight_schools

    data = eight_schools()
    posterior = ppl.infer.hmc(
        ppl.noncentered(schools, "theta"),
        data,
        seed=arguments.seed,
        dims={"theta": ["school"]},
        coords={"school": list(SCHOOLS)},
    )
    print(posterior)
    try:
        path = plot(posterior, data, arguments.plot)
    except ImportError as e:
        print(
            f"\nNo picture: {str(e.name).split('.')[0]} is not installed. Install it with: pip install 'ppl-jax[arviz]'"
        )
    except OSError as e:
        print(
            f"\nNo picture: {arguments.plot} cannot be written: {e.strerror or e}. Name another file with --plot FILE."
        )
    else:
        print(f"\nPicture: {path}")
    return 0


def plot(posterior, data, file):
    """Draw the effects with their intervals beside the data, and the densities of `mu` and `tau`; returns the path."""
    import numpy as np
    from matplotlib.figure import Figure

    from ppl.data import SCHOOLS

    figure = Figure(figsize=(10, 4.6), dpi=130, layout="constrained")
    forest, densities = figure.subplots(1, 2, width_ratios=[1.5, 1])
    draws = np.asarray(posterior["theta"]).reshape(-1, len(SCHOOLS))
    rows = np.arange(len(SCHOOLS))
    for levels, width in (((0.055, 0.945), 2.0), ((0.25, 0.75), 5.5)):
        low, high = np.quantile(draws, levels, axis=0)
        forest.hlines(rows + 0.12, low, high, color="#2a6f97", linewidth=width, capstyle="round")
    forest.plot(draws.mean(0), rows + 0.12, "o", color="white", markeredgecolor="#2a6f97", markersize=6, zorder=3)
    forest.errorbar(
        data["y"], rows - 0.18, xerr=data["sigma"], fmt="o", color="#9a9a9a", markersize=4, linewidth=1, zorder=1
    )
    forest.plot([], [], color="#2a6f97", linewidth=3, label="posterior: mean, 50% and 89% intervals")
    forest.plot([], [], "o-", color="#9a9a9a", markersize=4, linewidth=1, label="data: effect and standard error")
    forest.set_yticks(rows, SCHOOLS)
    forest.invert_yaxis()
    forest.set_xlabel("effect of coaching (points)")
    forest.set_title("Eight schools: theta", loc="left")
    for name, color in (("mu", "#2a6f97"), ("tau", "#d1701f")):
        values = np.asarray(posterior[name]).ravel()
        at, height = smooth(values, 0.0 if name == "tau" else None)
        densities.fill_between(at, height, color=color, alpha=0.18, linewidth=0)
        densities.plot(at, height, color=color, linewidth=1.8, label=f"{name}: mean {values.mean():.1f}")
    densities.set_ylim(bottom=0)
    densities.set_yticks([])
    densities.set_xlabel("points")
    densities.set_title("Common effect mu, spread tau", loc="left")
    densities.legend(frameon=False)
    for axes in (forest, densities):
        axes.spines[["top", "right"]].set_visible(False)
    densities.spines["left"].set_visible(False)
    figure.legend(
        *forest.get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False, fontsize="small"
    )
    path = Path(file).expanduser().absolute()
    figure.savefig(path)
    return path


def smooth(values, low=None):
    """Return points and a Gaussian kernel estimate of a density there; mass below `low` is folded back."""
    import numpy as np

    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34)
    width = 0.9 * spread * len(values) ** -0.2 or 1.0  # Silverman's rule
    first, last = np.quantile(values, [0.001, 0.999])
    at = np.linspace(first - 3 * width if low is None else low, last + 3 * width, 256)
    edges = np.linspace(at[0] - 5 * width, at[-1] + 5 * width, 2049)
    counts, _ = np.histogram(values, edges)
    middles = (edges[1:] + edges[:-1]) / 2

    def estimate(points):
        return np.exp(-0.5 * ((points[:, None] - middles) / width) ** 2) @ counts

    height = estimate(at) + (0 if low is None else estimate(2 * low - at))
    return at, height / (len(values) * width * np.sqrt(2 * np.pi))


def summary(arguments):
    """Print the table of a saved result."""
    import ppl

    print(ppl.load(arguments.file))
    return 0


def main(words=None):
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ppl", description="Sample eight schools; print a table and save a picture.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (0)")
    parser.add_argument("--plot", metavar="FILE", default="eight_schools.png", help="the picture (eight_schools.png)")
    commands = parser.add_subparsers(metavar="COMMAND")
    saved = commands.add_parser("summary", help="print the table of a saved result")
    saved.add_argument("file", metavar="FILE", help="what `posterior.save` wrote")
    saved.set_defaults(command=summary)
    arguments = parser.parse_args(words)
    if arguments.version:
        import ppl

        print(f"ppl {ppl.__version__}")
        return 0
    try:
        return getattr(arguments, "command", demo)(arguments)
    except (ModelError, DataError, StartError, FormatError, OSError) as e:
        print(f"python -m ppl: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

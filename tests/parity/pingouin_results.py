"""What pingouin 0.7.0 finds between samples of unequal spread and size, kept in a file so that no test needs it.

Written by: pip install pingouin==0.7.0 && python -m tests.parity.pingouin_results
"""

import itertools
import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("pingouin_0.7.0.json")
EXAMPLE = {  # of scipy's documentation of tukey_hsd: minutes to relief by brand of medicine
    "a": [24.5, 23.5, 26.4, 27.1, 29.9],
    "b": [28.4, 34.2, 29.5, 32.2, 30.1],
    "c": [26.1, 28.3, 24.3, 26.2, 27.8],
}


def samples(seed):
    """Two to five samples of two to six values whose means and spreads differ."""
    rng = np.random.default_rng(seed)
    return {
        name: np.round(rng.normal(rng.uniform(0, 3), 10 ** rng.uniform(-2, 1), rng.integers(2, 7)), 4).tolist()
        for name in "abcde"[: rng.integers(2, 6)]
    }


def games_howell(by_name):
    """Difference of means and p of each pair."""
    import pandas
    import pingouin

    rows = [(name, value) for name, values in by_name.items() for value in values]
    found = pingouin.pairwise_gameshowell(pandas.DataFrame(rows, columns=["of", "value"]), dv="value", between="of")
    by_pair = {(row.A, row.B): [float(row.diff), float(row.pval)] for row in found.itertuples()}
    return [by_pair[pair] for pair in itertools.combinations(by_name, 2)]


def main():
    """Write the file anew."""
    cases = [
        {"samples": by_name, "pairs": games_howell(by_name)} for by_name in (EXAMPLE, *map(samples, (1, 5, 7, 11)))
    ]
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What seqeval 1.2.2 finds in random tags, kept in a file because pip can no longer build its source package everywhere.

Written by: pip install --use-pep517 seqeval==1.2.2 && python -m tests.parity.extensions.tagging.seqeval_results
"""

import json
import warnings
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("seqeval_1.2.2.json")
TYPES = ["PER", "creative-work", "LOC"]
LABELS = ["O", *(f"{letter}-{type_}" for type_ in TYPES for letter in "BI")]


def random_tags(seed, *, is_valid):
    """Right and given labels of sentences, the given ones often the same; not valid sequences if `is_valid` is False."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, 60)
    gold = rng.choice(len(LABELS), lengths.sum(), p=[0.4, *[0.1] * 6])
    given = np.where(rng.random(len(gold)) < 0.75, gold, rng.choice(len(LABELS), len(gold)))
    is_first = np.concatenate([np.arange(length) == 0 for length in lengths])
    if is_valid:
        for labels in (gold, given):
            for place in range(len(labels)):
                before = 0 if is_first[place] else labels[place - 1]
                if labels[place] % 2 == 0 and labels[place] and (before + 1) // 2 != labels[place] // 2:
                    labels[place] -= 1
    return gold, given, is_first


def scores(seed, *, is_valid):
    """The tags, one digit each and a space between sentences, and seqeval's scores of them."""
    from seqeval import metrics

    gold, given, is_first = random_tags(seed, is_valid=is_valid)
    borders = np.flatnonzero(is_first)[1:]
    sides = [np.split(ids, borders) for ids in (gold, given)]
    named = [[[LABELS[tag] for tag in sentence] for sentence in side] for side in sides]
    texts = [" ".join("".join(map(str, sentence)) for sentence in side) for side in sides]
    report = metrics.classification_report(*named, output_dict=True)
    found = {"f1": metrics.f1_score, "precision": metrics.precision_score, "recall": metrics.recall_score}
    found |= {"accuracy": metrics.accuracy_score}
    values = {name: float(function(*named)) for name, function in found.items()}
    for type_ in TYPES:
        values |= {f"{name}_{type_}": float(report[type_][name]) for name in ("precision", "recall")}
        values[f"f1_{type_}"] = float(report[type_]["f1-score"])
    return {"gold": texts[0], "given": texts[1], "scores": values}


def entities(seed):
    """Tags with the letters of all schemes that seqeval's default mode knows, in any order, and its entities."""
    from seqeval.metrics.sequence_labeling import get_entities

    tags = [f"{letter}-{type_}" for letter in "BIES" for type_ in ("PER", "creative-work")]
    given = np.random.default_rng(seed).choice([*tags, "O", "O"], 40).tolist()
    return {
        "tags": " ".join(given),
        "entities": [[type_, start, last + 1] for type_, start, last in get_entities(given)],
    }


def main():
    """Write the file anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [scores(seed, is_valid=is_valid) for is_valid in (True, False) for seed in range(6)]
    lists = {"scores": cases, "entities": [entities(seed) for seed in range(20)]}
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]" for name, cases in lists.items()]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

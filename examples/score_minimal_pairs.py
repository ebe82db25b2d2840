"""Does a masked LM prefer the grammatical sentence of each pair? BLiMP, Zorro, and other sets in their formats.

    python examples/score_minimal_pairs.py blimp grammar/blimp runs/base runs/large --output blimp.md

    blimp   files .jsonl, a pair a line: sentence_good and sentence_bad (Warstadt et al. 2020: 67 files of 1,000)
    zorro   files .txt, a sentence a line: odd ones ungrammatical, even ones grammatical (Huebner et al. 2021: 23 of
            2,000 pairs)

A phenomenon's number is the mean of its paradigms, the files, and the number of all is the mean of all paradigms, as in
the papers. Published numbers stand beside those of the whole official set alone. Hardware: any; BLiMP by the base model
takes minutes on a GPU and hours on a CPU: try --limit 100 first.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.files import write_text
from roberta_plugin.hub import RobertaHub
from roberta_plugin.hub.running import usable_device
from roberta_plugin.progress import terminal_bar
from roberta_plugin.reports import markdown_table
from roberta_plugin.tables import read_table, text_lines, where

ENDINGS = {"blimp": "jsonl", "zorro": "txt"}
NUM_FILES = {"blimp": 67, "zorro": 23}
NUM_PAIRS = {"blimp": 1000, "zorro": 2000}  # of each
METHODS = {"blimp": "pll", "zorro": "unmasked"}  # as the published numbers were made
ALL = "all"
# From raw_results/summary/models_summary.jsonl of BLiMP's repository, BabyLM 2023, and Zorro's scores of roberta-base.
_PUBLISHED = {
    "blimp": """
        -                         n-gram LSTM Transformer-XL GPT-2 RoBERTa-base-of-BabyLM's-10M-words people
        all                       61.2   69.8 69.6           83.0  69.5                               88.6
        anaphor_agreement         47.9   91.7 94.1           99.3
        argument_structure        71.9   73.2 72.2           81.8
        binding                   64.4   73.5 74.7           80.9
        control_raising           68.5   67.0 71.5           81.9
        determiner_noun_agreement 70.0   85.4 83.0           95.8
        ellipsis                  36.9   67.6 77.2           89.3
        filler_gap_dependency     60.2   73.9 66.6           81.3
        irregular_forms           79.5   89.1 78.2           91.9
        island_effects            57.2   46.6 48.3           72.7
        npi_licensing             45.5   51.7 55.2           76.8
        quantifiers               53.5   64.5 69.3           79.0
        subject_verb_agreement    60.3   80.1 76.0           86.3
    """,
    "zorro": """
        -                         roberta-base
        all                       82.5
        agreement_determiner_noun 88.8
        agreement_subject_verb    84.5
        anaphor_agreement         91.0
        argument_structure        60.1
        binding                   93.8
        case                      75.1
        ellipsis                  82.3
        filler-gap                88.3
        irregular                 99.9
        island-effects            73.8
        local_attractor           89.4
        npi_licensing             87.3
        quantifiers               85.6
    """,
}


class Paradigm(NamedTuple):
    """The pairs of one file, the grammatical sentence first."""

    name: str
    phenomenon: str
    pairs: list[tuple[str, str]]


def read_paradigms(benchmark: str, folder: Path, *, limit: int | None = None) -> list[Paradigm]:
    """The paradigms of a folder's files, with at most `limit` pairs each, the first."""
    paths = sorted(folder.glob(f"*.{ENDINGS[benchmark]}"))
    if not paths:
        raise ValueError(
            f"{folder} holds no file *.{ENDINGS[benchmark]}: name the folder with the files of {benchmark}."
        )
    paradigms = []
    for path in paths:
        rows = list(read_blimp(path) if benchmark == "blimp" else read_zorro(path))
        if not rows:
            raise ValueError(f"{path} is empty: fetch it again.")
        for place, _, *pair in rows:
            if MASK in "".join(pair):
                raise ValueError(f"{place}: a sentence has a {MASK}, and cannot be scored. Fetch the file again.")
        paradigms.append(Paradigm(path.stem, rows[0][1], [(good, bad) for _, _, good, bad in rows[:limit]]))
    return paradigms


def read_blimp(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Place, phenomenon, grammatical and ungrammatical sentence of each pair."""
    for row in read_table(path):
        term = row.text("linguistics_term") if "linguistics_term" in row.values else path.stem
        phenomenon = "argument_structure" if term == "s-selection" else term  # as the paper's Table 3 counts it
        yield row.where, phenomenon, row.text("sentence_good"), row.text("sentence_bad")


def read_zorro(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Place, phenomenon, grammatical and ungrammatical sentence of each pair."""
    lines = [line.strip() for line in text_lines(path)]
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ValueError(f"{where(path, number)} is empty, so its pair is none. Fetch the file again.")
    if len(lines) % 2:
        raise ValueError(f"{path} has {len(lines):,} lines, and a pair is two. Fetch the file again.")
    for number in range(0, len(lines), 2):
        yield where(path, number + 1), path.stem.rpartition("-")[0], lines[number + 1], lines[number]


def percent_right(hub: RobertaHub, pairs: list[tuple[str, str]], method: Any) -> tuple[float, int]:
    """Pairs whose grammatical sentence has the higher score, in percent, and the number of those too long to score.

    Ties and pairs that are too long count as wrong.
    """
    fitting = [pair for pair in pairs if max(len(hub.encode(sentence)) for sentence in pair) <= hub.max_positions]
    scores = [each.score for each in hub.score([sentence for pair in fitting for sentence in pair], method)]
    right = sum(good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True))
    return 100 * right / len(pairs), len(pairs) - len(fitting)


def evaluate(hub: RobertaHub, paradigms: list[Paradigm], method: str) -> tuple[dict[str, float], int]:
    """Paradigm, phenomenon or `ALL` -> pairs right in percent; and the number of pairs that are too long."""
    groups: dict[str, list[float]] = {}
    num_long = 0
    for paradigm in terminal_bar(paradigms, "scoring", unit="paradigm"):
        value, skipped = percent_right(hub, paradigm.pairs, method)
        num_long += skipped
        for name in (ALL, paradigm.phenomenon, paradigm.name):
            groups.setdefault(name, []).append(value)
    return {name: mean(values) for name, values in groups.items()}, num_long


def published(benchmark: str) -> dict[str, dict[str, str]]:
    """Model -> phenomenon -> percent."""
    (_, *models), *rows = (line.split() for line in _PUBLISHED[benchmark].strip().splitlines())
    return {model: {name: values[at] for name, *values in rows if at < len(values)} for at, model in enumerate(models)}


def difference(benchmark: str, paradigms: list[Paradigm]) -> str:
    """What tells the pairs from the official set, of which the published numbers are; empty: nothing."""
    if len(paradigms) != NUM_FILES[benchmark]:
        return f"{len(paradigms)} files, and {benchmark} has {NUM_FILES[benchmark]}"
    other = next((each for each in paradigms if len(each.pairs) != NUM_PAIRS[benchmark]), None)
    if other is not None:
        return f"{len(other.pairs):,} pairs of {other.name}, and {benchmark} has {NUM_PAIRS[benchmark]:,}"
    known = next(iter(published(benchmark).values())).keys() - {ALL}
    unknown = sorted({paradigm.phenomenon for paradigm in paradigms} ^ known)
    return f"other phenomena than {benchmark} ({unknown[0]})" if unknown else ""


def table(names: list[str], columns: dict[str, dict[str, Any]], **further: dict[str, str]) -> str:
    """A table with a row for each name; numbers of ours are rounded as the published ones are."""
    shown = {model: {name: f"{float(value):.1f}" for name, value in each.items()} for model, each in columns.items()}
    shown |= further
    return markdown_table(["", *shown], [[name, *(each.get(name, "") for each in shown.values())] for name in names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=ENDINGS)
    parser.add_argument("data", type=Path, help="folder of the official files")
    parser.add_argument("models", nargs="+", help="checkpoints, and folders of a run, of Hugging Face or fairseq")
    parser.add_argument("--output", type=Path, help="also write the tables to this file (Markdown)")
    parser.add_argument("--method", choices=("pll", "pll-word-l2r", "unmasked"), help="default: pll, zorro: unmasked")
    parser.add_argument("--limit", type=int, help="only the first pairs of each paradigm, for a quick look")
    parser.add_argument("--lowercase", action="store_true", help="for models that were trained on lower case alone")
    parser.add_argument("--tokenizer", help="folder with dict.txt and the tokenizer's files, if not those of the model")
    parser.add_argument("--device", help="default: a GPU if there is one")
    parser.add_argument("--precision", default="fp32", help="bf16 and int8 are faster where the processor has them")
    args = parser.parse_args()
    if args.limit is not None and args.limit < 1:
        parser.error(f"--limit must be 1 or more, got {args.limit}")
    try:
        print(report(args))
    except (ValueError, OSError) as error:
        raise SystemExit(f"score_minimal_pairs: {error}") from None


def report(args: argparse.Namespace) -> str:
    """The tables of all models beside the published numbers; also written, if a file is named."""
    paradigms = read_paradigms(args.benchmark, args.data, limit=args.limit)
    if args.lowercase:
        paradigms = [
            paradigm._replace(pairs=[(good.lower(), bad.lower()) for good, bad in paradigm.pairs])
            for paradigm in paradigms
        ]
    method = args.method or METHODS[args.benchmark]
    options = {"precision": args.precision, "device": usable_device(args.device)}
    columns: dict[str, dict[str, Any]] = {}
    remarks = []
    for model in args.models:
        hub = RobertaHub.from_pretrained(model, data=args.tokenizer, tokenizer=args.tokenizer, **options)
        columns[model], num_long = evaluate(hub, paradigms, method)
        if num_long:
            remarks.append(f"{model} reads at most {hub.max_positions} tokens: {num_long:,} longer pairs are wrong.\n")
    beside = published(args.benchmark)
    if what := difference(args.benchmark, paradigms):
        beside = {}
        remarks.append(f"Published numbers are left out, which are those of all pairs: these are {what}.\n")
    sizes = {paradigm.name: f"{len(paradigm.pairs):,}" for paradigm in paradigms}
    num_pairs = sum(len(paradigm.pairs) for paradigm in paradigms)
    phenomena = [ALL, *dict.fromkeys(sorted(paradigm.phenomenon for paradigm in paradigms))]
    text = "\n".join(
        [
            f"{args.benchmark}, {num_pairs:,} pairs, scored by {method} in {args.precision}"
            f"{' in lower case' if args.lowercase else ''}: pairs right in percent. "
            "Ties are wrong; guessing gives 50.\n",
            *remarks,
            table(phenomena, {**columns, **beside}),
            "",
            table([*sizes], columns, pairs=sizes),
        ]
    )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(args.output, text + "\n")
    return text


if __name__ == "__main__":
    main()

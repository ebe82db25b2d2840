"""Sentences of speech for a small model of grammar: what adults say to children, and the dialogues of novels.

    python examples/pretrain/speech.py speech --said CHILDES.txt --novels novels/*.txt --words 10000000

Writes train.txt and valid.txt with a sentence a line in lower case, as BabyBERTa has its text (Huebner et al. 2021).

    --said      files with an utterance a line, and a blank line between transcripts
    --novels    files with a paragraph a line, and a blank line between books: what stands in quotation marks, cut into
                sentences of 2 to 30 words

Pieces of 200 lines are shuffled, and every 150th is held out. Hardware: any CPU; a minute for 200 MB of novels.
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

LINES = 200  # of a piece, so that neighboring sentences stay together
HELD_OUT = 150
SHORTEST, LONGEST = 2, 30  # words of a sentence
OPEN, CLOSE = "\u201c", "\u201d"  # typographic quotation marks, and single ones
OPEN_ONE, CLOSE_ONE = "\u2018", "\u2019"
_ONE = f"'{OPEN_ONE}{CLOSE_ONE}"
QUOTED = re.compile(
    rf"[\"{OPEN}]([^\"{OPEN}{CLOSE}]{{4,400}})[\"{CLOSE}]"
    # single marks: apostrophes within words end no quotation
    rf"|(?<!\w)['{OPEN_ONE}]((?:[^{_ONE}]|(?<=\w)['{CLOSE_ONE}](?=\w)){{4,400}})['{CLOSE_ONE}](?!\w)"
)
_TITLES = "".join(rf"(?<!\b{title})" for title in ("Mr", "Mrs", "Dr", "St", "Ms"))
SENTENCE_END = re.compile(rf"{_TITLES}([.!?]['\"{CLOSE_ONE}{CLOSE})]*)\s+(?=['\"{OPEN_ONE}{OPEN}A-Z])")


def read_said(path: Path) -> Iterator[str]:
    """Utterances."""
    with path.open(encoding="utf-8") as file:
        yield from (line.strip() for line in file if line.strip())


def read_dialogues(path: Path) -> Iterator[str]:
    """Sentences in quotation marks."""
    with path.open(encoding="utf-8") as file:
        for paragraph in file:
            for match in QUOTED.finditer(paragraph):
                for sentence in SENTENCE_END.sub(r"\1\n", (match[1] or match[2]).strip()).split("\n"):
                    if SHORTEST <= len(sentence.split()) <= LONGEST:
                        yield sentence.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for the two files")
    parser.add_argument("--said", type=Path, nargs="*", default=[])
    parser.add_argument("--novels", type=Path, nargs="*", default=[])
    parser.add_argument("--words", type=int, default=10_000_000, help="take at most this many (default: %(default)s)")
    args = parser.parse_args()
    if not args.said and not args.novels:
        parser.error("name files as --said or --novels")
    random.seed(0)
    sources = [
        (path, list(read(path)))
        for read, paths in ((read_said, args.said), (read_dialogues, args.novels))
        for path in paths
    ]
    pieces = [lines[at : at + LINES] for _, lines in sources for at in range(0, len(lines), LINES)]
    for path, lines in sources:
        print(f"{path}: {len(lines):,} sentences, {sum(len(line.split()) for line in lines):,} words")
    random.shuffle(pieces)
    args.output.mkdir(parents=True, exist_ok=True)
    taken = dict.fromkeys(("train", "valid"), 0)
    with (args.output / "train.txt").open("w") as train, (args.output / "valid.txt").open("w") as valid:
        for number, piece in enumerate(pieces):
            name, file = ("valid", valid) if number % HELD_OUT == 0 else ("train", train)
            size = sum(len(line.split()) for line in piece)
            if sum(taken.values()) + size > args.words:
                break
            taken[name] += size
            file.write("\n".join(piece).lower() + "\n\n")
    print(f"{args.output}: {taken['train']:,} words to train on, {taken['valid']:,} held out")


if __name__ == "__main__":
    main()

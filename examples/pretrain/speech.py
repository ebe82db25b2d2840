"""Sentences of speech for a small model of grammar: what adults say to children, and the dialogues of novels.

    python examples/pretrain/speech.py speech --said CHILDES.txt --novels novels/*.txt --words 10000000

Writes train.txt and valid.txt with a sentence a line in lower case, as BabyBERTa has its text (Huebner et al. 2021).

    --said      files with an utterance a line, and a blank line between transcripts
    --novels    files with a paragraph a line, and a blank line between books: what stands in quotation marks, cut into
                sentences of 2 to 30 words

Files are UTF-8, plain or compressed. Pieces of 200 lines are shuffled, and every 150th is held out. Hardware: any CPU;
a minute for 200 MB of novels.
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from roberta_plugin.files import atomic_write
from roberta_plugin.tables import text_lines

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
    yield from (line.strip() for line in text_lines(path) if line.strip())


def read_dialogues(path: Path) -> Iterator[str]:
    """Sentences in quotation marks."""
    for paragraph in text_lines(path):
        for match in QUOTED.finditer(paragraph):
            for sentence in SENTENCE_END.sub(r"\1\n", (match[1] or match[2]).strip()).split("\n"):
                if SHORTEST <= len(sentence.split()) <= LONGEST:
                    yield sentence.strip()


def read_pieces(said: list[Path], novels: list[Path]) -> list[list[str]]:
    """The sentences of all files, in pieces."""
    pieces = []
    for read, paths in ((read_said, said), (read_dialogues, novels)):
        for path in paths:
            lines = list(read(path))
            if not lines:
                what = (
                    "no line"
                    if read is read_said
                    else f"no sentence in quotation marks (\" ' {OPEN} {CLOSE} {OPEN_ONE})"
                )
                raise ValueError(f"{path} has {what}: correct the path, or leave it out.")
            print(f"{path}: {len(lines):,} sentences, {count_words(lines):,} words")
            pieces += [lines[at : at + LINES] for at in range(0, len(lines), LINES)]
    return pieces


def count_words(lines: list[str]) -> int:
    return sum(len(line.split()) for line in lines)


def divide(pieces: list[list[str]], words: int) -> dict[str, list[list[str]]]:
    """The first pieces with at most `words` words, for training and held out."""
    splits: dict[str, list[list[str]]] = {"train": [], "valid": []}
    for number, piece in enumerate(pieces):
        words -= count_words(piece)
        if words < 0:
            break
        splits["valid" if number % HELD_OUT == 0 else "train"].append(piece)
    if not splits["train"]:
        sizes = " and ".join(str(count_words(piece)) for piece in pieces[:2])
        raise ValueError(
            f"nothing is left to train on beside {LINES} sentences that are held out. The first pieces have {sizes} "
            "words: raise --words, or name more files."
        )
    return splits


def paths_of(output: Path) -> dict[str, Path]:
    """The files to write, none of which may be there."""
    paths = {name: output / f"{name}.txt" for name in ("train", "valid")}
    for path in paths.values():
        if path.exists():
            raise ValueError(f"{path} exists: name another folder, or remove the file.")
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for the two files")
    parser.add_argument("--said", type=Path, nargs="*", default=[])
    parser.add_argument("--novels", type=Path, nargs="*", default=[])
    parser.add_argument("--words", type=int, default=10_000_000, help="take at most this many (default: %(default)s)")
    args = parser.parse_args()
    if not args.said and not args.novels:
        parser.error("name files as --said or --novels")
    try:
        paths = paths_of(args.output)
        pieces = read_pieces(args.said, args.novels)
        random.seed(0)
        random.shuffle(pieces)
        splits = divide(pieces, args.words)
        args.output.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            with atomic_write(path, "w") as file:
                file.writelines("\n".join(piece).lower() + "\n\n" for piece in splits[name])
    except (ValueError, OSError) as error:
        raise SystemExit(f"speech: {error}") from None
    train, valid = (sum(map(count_words, splits[name])) for name in ("train", "valid"))
    print(f"{args.output}: {train:,} words to train on, {valid:,} held out")


if __name__ == "__main__":
    main()

"""Clean and divide the Latin Library for the guide, examples/README.md (`pip install datasketch`).

    python examples/clean_latin.py lat_text_latin_library latin

Drops short and repeated paragraphs and what belongs to the web pages, and holds out every 20th file. Writes train.txt
and valid.txt, with a blank line between documents, and tables of passages with their authors, authors.train.csv and
authors.valid.csv. Change it for your own text. Hardware: any CPU; half a minute.
"""

import argparse
import csv
import random
import re
import unicodedata
from pathlib import Path

import datasketch

WORDS = 40
AUTHORS = ("aquinas", "augustine", "cicero", "justinian", "livy", "ovid", "sen", "tacitus")
PASSAGES = {"train": 120, "valid": 50}  # of an author, at most


def read_documents(source: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """The documents of each split: the author's folder and the paragraphs, of which repeated ones are kept once."""
    seen = datasketch.MinHashLSH(threshold=0.7, num_perm=64)
    documents: dict[str, list[tuple[str, list[str]]]] = {split: [] for split in PASSAGES}
    for number, path in enumerate(sorted(source.rglob("*.txt"))):
        text = unicodedata.normalize("NFC", path.read_text(encoding="utf-8", errors="replace"))
        text = re.sub(r"[\x00-\x08\x0e-\x1f]", "", text)  # control characters: some of the files have zero bytes
        lines: list[str] = []
        for paragraph in re.split(r"\n\s*\n", text):
            words = re.sub(r"\[[^\]]{0,20}\]|\d+", " ", paragraph).split()  # numbers of chapters and verses
            if len(words) < 8 or "The Latin Library" in " ".join(words):  # headings and navigation
                continue
            sketch = datasketch.MinHash(num_perm=64)
            sketch.update_batch([" ".join(words[i : i + 5]).encode() for i in range(len(words) - 4)])
            if not seen.query(sketch):
                seen.insert((number, len(lines)), sketch)
                lines.append(" ".join(words))
        if lines:
            documents["valid" if number % 20 == 0 else "train"].append((path.parent.name, lines))
    return documents


def write_passages(path: Path, documents: list[tuple[str, list[str]]], most: int, rng: random.Random) -> None:
    """A table of passages of WORDS words and their authors, for fine-tuning."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("text", "author"))
        for author in AUTHORS:
            words = " ".join(line for name, lines in documents if name == author for line in lines).split()
            passages = [" ".join(words[i : i + WORDS]) for i in range(0, len(words) - WORDS, WORDS)]
            table.writerows((passage, author) for passage in rng.sample(passages, min(most, len(passages))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the clone of lat_text_latin_library")
    parser.add_argument("output", type=Path, help="folder for the four files")
    arguments = parser.parse_args()
    rng = random.Random(1)
    documents = read_documents(arguments.source)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for split, most in PASSAGES.items():
        text = "\n\n".join("\n".join(lines) for _, lines in documents[split])
        (arguments.output / f"{split}.txt").write_text(f"{text}\n", encoding="utf-8")
        write_passages(arguments.output / f"authors.{split}.csv", documents[split], most, rng)


if __name__ == "__main__":
    main()

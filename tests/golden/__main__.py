"""`python -m tests.golden`: record, compare, breaks. See the package's docstring."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import machine
from tests.conftest import REPOSITORY

REFERENCE = Path(__file__).parent / "reference.json"
PARTS = ("interface", "files", "pretraining", "finetuning", "conversion")


def build_parser() -> argparse.ArgumentParser:
    """The options of each action."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="See tests/golden/__init__.py.")
    actions = parser.add_subparsers(dest="action", required=True)
    only = "part/subject, or its beginning: finetuning/own"
    record = actions.add_parser("record", help="record all entries, or replace those of some subjects")
    record.add_argument("--output", dest="file", type=Path, default=REFERENCE, metavar="FILE")
    compare = actions.add_parser("compare", help="record into memory, and compare; 1 if an entry differs")
    compare.add_argument("file", type=Path, nargs="?", default=REFERENCE, metavar="FILE")
    compare.add_argument("--exact", action="store_true", help="a number that is within 1e-6 differs, too")
    breaks = actions.add_parser("breaks", help="which test notices each deliberate fault; 1 if one is not noticed")
    breaks.add_argument("--write", action="store_true", help="write the outcomes into breaks.md")
    for each in (record, compare, breaks):
        each.add_argument("--only", default="", help="a part of a fault's name" if each is breaks else only)
        each.add_argument("--processes", type=int, default=2, help="subjects at a time")
    return parser


def main() -> int:
    """Run the action; 1 if anything differs, 2 if a subject could not be recorded."""
    args = build_parser().parse_args()
    if args.action == "breaks":
        from tests.golden.breaks import run_breaks

        return run_breaks(args.only, processes=args.processes, write=args.write)
    earlier = read(args.file)
    if args.action == "compare" and not earlier:
        raise SystemExit(f"There is no recording {args.file}: make one by `python -m tests.golden record`.")
    found, failed = recorded(args.only, processes=args.processes)
    if failed:
        print(f"Not recorded: {', '.join(failed)}.", file=sys.stderr)
    if args.action == "record":
        if not failed:
            write(args.file, merged(earlier, found, only=args.only))
        return 2 if failed else 0
    before = chosen(earlier["entries"], args.only)
    before = {name: value for name, value in before.items() if subject_of(name) not in failed}
    differs = report(before, found, exact=args.exact)
    if differs and earlier["about"]["machine"] != machine():
        print(f"The recording is of another machine, {earlier['about']['machine']}; this is {machine()}.")
    return 2 if failed else int(differs)


def recorded(only: str, *, processes: int) -> tuple[dict[str, Any], list[str]]:
    """All entries of the chosen subjects, and the subjects that failed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from tests.campaign.forks import fork, preload
    from tests.golden.entries import flatten

    preload()
    work = [name for name in subjects() if matches(name, only)]
    assert work, f"no subject begins with {only!r}"
    running: dict[int, tuple[str, Path, float]] = {}
    entries: dict[str, Any] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="golden-") as root:
        while work or running:
            while work and len(running) < processes:
                name = work.pop(0)
                folder = Path(root) / f"{len(work):03}"
                folder.mkdir()
                child = fork(lambda name=name, folder=folder: one(name, folder), folder / "said.txt")
                running[child] = (name, folder, time.monotonic())
            child, status = os.wait()
            name, folder, begun = running.pop(child)
            if status:
                failed.append(name)
                print(f"{name}: FAILED\n{(folder / 'said.txt').read_text()[-4000:]}", file=sys.stderr)
            else:
                entries |= flatten(json.loads((folder / "entries.json").read_text()), f"{name}/")
                print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return entries, failed


def one(name: str, folder: Path) -> int:
    """Record a subject; in a fork."""
    try:
        entries = subjects()[name](folder)
    except BaseException:
        traceback.print_exc()
        return 1
    (folder / "entries.json").write_text(json.dumps(entries))
    return 0


def subjects() -> Mapping[str, Callable[[Path], dict[str, Any]]]:
    """Part/subject -> what records it, the long ones first."""
    import importlib
    from functools import partial

    found = {}
    for part in reversed(PARTS):
        module = importlib.import_module(f"tests.golden.{part}")
        found |= {f"{part}/{name}": partial(module.record, name) for name in module.SUBJECTS}
    return found


def subject_of(entry: str) -> str:
    """Part and subject of an entry."""
    return "/".join(entry.split("/", 2)[:2])


def matches(subject: str, only: str) -> bool:
    """Whether a subject is among the chosen ones; `only` may also name one of its entries."""
    return subject.startswith(only) or only.startswith(f"{subject}/")


def chosen(entries: Mapping[str, Any], only: str) -> dict[str, Any]:
    """The entries of the subjects that `only` chooses, those of subjects that there are no more among them."""
    return {name: value for name, value in entries.items() if matches(subject_of(name), only)}


def merged(earlier: Mapping[str, Any], found: Mapping[str, Any], *, only: str) -> dict[str, Any]:
    """The recording with the entries of the chosen subjects replaced."""
    old = earlier.get("entries", {})
    stay = {name: old[name] for name in old.keys() - chosen(old, only).keys()}
    about = {"machine": machine(), "recorded on": revision()}
    if only:
        about = {**earlier.get("about", about), f"anew: {only}": revision()}
    return {"about": about, "entries": dict(sorted({**stay, **found}.items()))}


def revision() -> str:
    """The last commit that changed the package, and whether its files have changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    changed = " with changes" if git("status", "--porcelain", "roberta_plugin") else ""
    return f"commit {git('log', '-1', '--format=%h', '--', 'roberta_plugin').strip()}{changed}"


def read(path: Path) -> dict[str, Any]:
    """A recording; an empty one if there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    about = content.pop("about")
    entries = {f"{subject}/{name}": value for subject, found in content.items() for name, value in found.items()}
    return {"about": about, "entries": entries}


def write(path: Path, recording: Mapping[str, Any]) -> None:
    """A line per entry, below its subject, so that a difference of two commits can be read."""
    by_subject: dict[str, list[str]] = {}
    for name, value in recording["entries"].items():
        part, subject, rest = name.split("/", 2)
        line = f"{json.dumps(rest)}:{json.dumps(value, separators=(',', ':'))}"
        by_subject.setdefault(f"{part}/{subject}", []).append(line)
    texts = [f"{json.dumps(subject)}: {{\n" + ",\n".join(lines) + "\n}" for subject, lines in by_subject.items()]
    head = json.dumps({"about": recording["about"]}, indent=1)[1:-2]
    path.write_text("{" + head + ",\n" + ",\n".join(texts) + "\n}\n")
    print(f"{path}: {len(recording['entries'])} entries, {path.stat().st_size / 1000:.0f} kB")


def report(before: Mapping[str, Any], now: Mapping[str, Any], *, exact: bool) -> bool:
    """Print what is not equal; whether it counts."""
    from tests.golden.entries import DIFFERENT, EQUAL, MISSING, NEW, WITHIN, compare, difference

    outcomes = compare(before, now)
    for name, outcome in outcomes.items():
        if outcome in (MISSING, NEW):
            print(f"{outcome}: {name}")
        elif outcome != EQUAL:
            print(f"{outcome}: {name}: {difference(before[name], now[name])}")
    counts = Counter(outcomes.values())
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in (EQUAL, WITHIN, DIFFERENT, MISSING, NEW)))
    bad = {DIFFERENT, MISSING, NEW, *([WITHIN] if exact else [])}
    return any(outcome in bad for outcome in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())

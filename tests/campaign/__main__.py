"""`python -m tests.campaign`: run the campaign, print its tables, write them where asked."""

from __future__ import annotations

import argparse
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.campaign.cluster import run_cluster
from tests.campaign.corruption import run_corruption
from tests.campaign.corruption import write_inputs as write_corruption_inputs
from tests.campaign.entries import all_entries
from tests.campaign.environment import run_environment
from tests.campaign.hostile import run_hostile
from tests.campaign.kills import run_kills
from tests.campaign.outcome import Table, joined, report, timed
from tests.campaign.subjects import all_subjects, write_inputs
from tests.conftest import REPOSITORY


def build_parser() -> argparse.ArgumentParser:
    """The options of the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all, at once)")
    of_kills = "kills per subject and round (6; of binarize and prepare, 4 times as many)"
    parser.add_argument("--kills", type=int, default=6, help=of_kills)
    of_rounds = "begin rounds of kills, and damage files, for so long (0: once)"
    parser.add_argument("--minutes", type=float, default=0, help=of_rounds)
    parser.add_argument("--processes", type=int, default=1, help="processes for kills and for corruption (1)")
    parser.add_argument("--cases", type=int, default=1000, help="damaged files (1000)")
    parser.add_argument("--faults", type=int, default=20, help="of the job on a cluster, for each precision (20)")
    parser.add_argument("--only", default="", help="subjects and entries whose name has this in it")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--hardware", default="cpu2", help="name of the machine in the name of the results (cpu2)")
    parser.add_argument("--write", action="store_true", help="write results/campaign_HARDWARE_YYYYMM.md")
    parser.add_argument("--inputs", type=Path, help="folder of the made-up data, written once (default: a new one)")
    # Given by the campaign to the processes of its parts.
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def kills(args: argparse.Namespace, inputs: Path, folder: Path) -> Table:
    """The subjects chosen."""
    subjects = [subject for subject in all_subjects(inputs) if args.only in subject.name]
    return run_kills(
        subjects[args.share :: args.processes],
        folder,
        kills_per_subject=args.kills,
        minutes=args.minutes,
        seed=args.seed + args.share,
    )


def corruption(args: argparse.Namespace, inputs: Path, folder: Path) -> Table:
    """The entries chosen."""
    entries = [entry for entry in all_entries(inputs) if args.only in entry.name]
    share = (args.share, args.processes)
    return run_corruption(entries, folder, cases=args.cases, minutes=args.minutes, seed=args.seed, share=share)


PARTS: dict[str, Callable[[argparse.Namespace, Path, Path], Table]] = {
    "kills": kills,
    "corruption": corruption,
    "environment": lambda args, inputs, folder: run_environment(inputs, folder, only=args.only),
    "cluster": lambda args, inputs, folder: run_cluster(
        inputs, folder, faults=args.faults, seed=args.seed, only=args.only
    ),
    "hostile": lambda args, inputs, folder: run_hostile(inputs, folder, only=args.only and [args.only]),
}


def main() -> int:
    """Run the chosen parts, each in a process of its own; 1 if any case is bad, 2 if a part fails itself."""
    parser = build_parser()
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    if args.folder:
        return run_part(args)
    parts = args.parts or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    args.inputs = inputs = write_inputs(args.inputs or folder / "inputs")
    if {"hostile", "corruption", "environment"} & set(parts):
        write_corruption_inputs(inputs)
    options = [word for word in sys.argv[1:] if word not in PARTS]
    command = [sys.executable, "-m", "tests.campaign", *options, "--folder", str(folder), "--inputs", str(inputs)]
    shares = {part: args.processes if part in ("kills", "corruption") else 1 for part in parts}
    if "kills" in parts:
        all_subjects(inputs)
    processes = {
        (part, share): subprocess.Popen([*command, part, "--share", str(share)], cwd=REPOSITORY)
        for part in parts
        for share in range(shares[part])
    }
    failed = sorted({part for (part, _), process in processes.items() if process.wait() != 0})
    if failed:
        print(f"The campaign itself failed in {', '.join(failed)}; its files are in {folder}.", file=sys.stderr)
        return 2
    tables = [
        joined([pickle.loads((folder / f"{part}-{share}.table").read_bytes()) for share in range(shares[part])])
        for part in parts
    ]
    called = " ".join(["python -m tests.campaign", *sys.argv[1:]])
    print(report(tables, command=called, hardware=args.hardware, write=args.write))
    shutil.rmtree(folder)
    return 1 if any(table.cases for table in tables) else 0


def run_part(args: argparse.Namespace) -> int:
    """One part, in a folder with the inputs: its table goes to a file there."""
    (part,) = args.parts
    work = args.folder / f"{part}-{args.share}"
    work.mkdir()
    table = timed(lambda: PARTS[part](args, args.inputs, work))
    (args.folder / f"{part}-{args.share}.table").write_bytes(pickle.dumps(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())

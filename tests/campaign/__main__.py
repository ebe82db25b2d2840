"""`python -m tests.campaign`: run the campaign, print its tables, write them where asked."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.campaign.corruption import run_corruption
from tests.campaign.corruption import write_inputs as write_corruption_inputs
from tests.campaign.entries import all_entries
from tests.campaign.environment import run_environment
from tests.campaign.hostile import run_hostile
from tests.campaign.kills import run_kills
from tests.campaign.outcome import Table, report, timed
from tests.campaign.subjects import all_subjects, write_inputs

PARTS = ("kills", "corruption", "environment", "hostile")


def main() -> int:
    """Run the chosen parts; 1 if any case is bad."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--kills", type=int, default=12, help="kills per subject and round (12; 11 subjects)")
    parser.add_argument("--rounds", type=int, default=1, help="times that every subject is attacked (1)")
    parser.add_argument("--cases", type=int, default=1000, help="damaged files (1000)")
    parser.add_argument("--only", default="", help="subjects and entries whose name has this in it")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--hardware", default="cpu2", help="name of the machine in the name of the results (cpu2)")
    parser.add_argument("--write", action="store_true", help="write results/campaign_HARDWARE_YYYYMM.md")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    parts = args.parts or PARTS
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    inputs = write_inputs(folder / "inputs")
    tables: list[Table] = []
    if "hostile" in parts or "corruption" in parts:
        write_corruption_inputs(inputs)
    # The forking parts come first: they import torch into this process.
    if "hostile" in parts:
        tables.append(timed(lambda: run_hostile(inputs, folder / "hostile")))
    if "corruption" in parts:
        entries = [entry for entry in all_entries(inputs) if args.only in entry.name]
        tables.append(timed(lambda: run_corruption(entries, folder, cases=args.cases, seed=args.seed)))
    if "environment" in parts:
        tables.append(timed(lambda: run_environment(inputs, folder / "environment")))
    if "kills" in parts:
        subjects = [subject for subject in all_subjects(inputs) if args.only in subject.name]
        tables.append(
            timed(lambda: run_kills(subjects, folder, kills_per_subject=args.kills, rounds=args.rounds, seed=args.seed))
        )
    command = " ".join(["python -m tests.campaign", *sys.argv[1:]])
    print(report(tables, command=command, hardware=args.hardware, write=args.write))
    shutil.rmtree(folder)
    return 1 if any(table.cases for table in tables) else 0


if __name__ == "__main__":
    sys.exit(main())

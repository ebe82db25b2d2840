"""A short form of every part of the fault-injection campaign; `python -m tests.campaign` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaign import corruption
from tests.campaign.cluster import run_cluster
from tests.campaign.entries import all_entries
from tests.campaign.environment import read_only
from tests.campaign.hostile import run_hostile
from tests.campaign.kills import run_kills
from tests.campaign.subjects import all_subjects, write_inputs
from tests.slurm_cluster import needs_slurm

pytestmark = pytest.mark.slow
CASES = 15  # one a command
HOSTILE_ENTRIES = ("RobertaHub.from_pretrained", "roberta evaluate")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_inputs(tmp_path_factory.mktemp("campaign") / "inputs")
    corruption.write_inputs(folder)
    return folder


def test_killed_pretraining_ends_the_same(inputs: Path, tmp_path: Path) -> None:
    subjects = [subject for subject in all_subjects(inputs) if subject.name == "pretraining, fp32"]
    table = run_kills(subjects, tmp_path, kills_per_subject=2)
    assert table.cases == []
    assert table.total("same end") >= 1
    assert table.total("killed while writing") + table.total("power cut") >= 1
    assert table.total("whole checkpoint") >= 3


def test_the_first_cases_have_every_command_and_every_kind_of_damage(inputs: Path) -> None:
    entries = all_entries(inputs)
    turns = [(entry.name, victim, mutation) for entry, victim, mutation in corruption.turns_of(entries, seed=0)]
    assert len(set(turns)) == sum(6 * len(entry.victims) for entry in entries)
    cases = [name for name, _, _ in turns[:1000]]
    assert min(map(cases.count, cases)) >= 1000 // len(entries) - 1, "each command has its share"
    assert {name for name, _, _ in turns[:CASES]} == {entry.name for entry in entries}
    assert {mutation for _, _, mutation in turns[:CASES]} == set(corruption.MUTATIONS)


def test_damaged_files_are_named_or_harmless(inputs: Path, tmp_path: Path) -> None:
    table = corruption.run_corruption(all_entries(inputs), tmp_path, cases=CASES, sound_runs=1)
    assert table.cases == []
    assert sum(table.total(outcome) for outcome in table.outcomes) == CASES
    assert table.total("clear error") >= 8


def test_hostile_checkpoints_run_nothing(inputs: Path, tmp_path: Path) -> None:
    table = run_hostile(inputs, tmp_path, only=HOSTILE_ENTRIES)
    assert table.cases == []
    assert set(table.counts) == set(HOSTILE_ENTRIES)
    assert table.total("refused") >= 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a read-only file system")
def test_a_read_only_folder_is_named(inputs: Path, tmp_path: Path) -> None:
    outcome = read_only(inputs, tmp_path)
    if outcome.startswith("skipped"):
        pytest.skip(outcome)
    assert outcome == "ok"


@pytest.mark.slurm
@needs_slurm
def test_a_job_that_is_hit_by_faults_ends_the_same(inputs: Path, tmp_path: Path) -> None:
    table = run_cluster(inputs, tmp_path, faults=4, only="bf16")
    assert table.cases == []
    assert (table.total("went on"), table.total("same end")) == (4, 1)

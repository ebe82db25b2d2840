"""128 nodes x 8 ranks on one machine: 1,024 processes agree on who they are and meet at one address."""

import dataclasses
import importlib.util
import json
import socket
import sys
import time
from pathlib import Path

import pytest
import submitit

from roberta_plugin.launch import rendezvous
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.submission import copy_code, sbatch_parameters, write_environment
from tests.slurm_cluster import needs_slurm, slurm_cluster, talking_to, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slurm, pytest.mark.slow, needs_slurm]

NODES, RANKS_PER_NODE = 128, 8
WORLD_SIZE = NODES * RANKS_PER_NODE


def make_light_rank(rendezvous_file: str, folder: str, port: int):
    """What a rank does up to the training, without torch: a thousand of these fit into one machine.

    A closure, so that it travels by value and imports nothing of the plugin, whose import loads torch.
    """

    def light_rank() -> int:
        spec = importlib.util.spec_from_file_location("rendezvous", rendezvous_file)
        module = importlib.util.module_from_spec(spec)
        sys.modules["rendezvous"] = module
        spec.loader.exec_module(module)
        place = module.rank_from_environment(num_nodes=128, ranks_per_node=8, port=port)
        host, port_text = place.init_method.removeprefix("tcp://").split(":")
        met = []
        if place.rank == 0:
            with socket.create_server((host, int(port_text)), backlog=2048) as server:
                while len(met) < place.world_size - 1:
                    connection, _ = server.accept()
                    with connection:
                        met.append(int(connection.makefile().read()))
        else:
            for _ in range(600):
                try:
                    connection = socket.create_connection((host, int(port_text)), timeout=60)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.5)
            with connection:
                connection.sendall(str(place.rank).encode())
        record = {**dataclasses.asdict(place), "machine": socket.gethostname(), "met": met, "host": place.host}
        record |= {"init_method": place.init_method, "arguments": module.distributed_arguments(place, is_cpu=False)}
        Path(folder, f"{place.rank}.json").write_text(json.dumps(record))
        return place.rank

    return light_rank


def test_a_thousand_ranks_find_each_other(tmp_path, monkeypatch):
    records_dir, folder = tmp_path / "records", tmp_path / "slurm"
    records_dir.mkdir()
    folder.mkdir()
    recipe = LaunchSettings(
        output_dir=tmp_path / "run",
        train=("--cpu",),
        nodes=NODES,
        gpus_per_node=RANKS_PER_NODE,
        cpus_per_gpu=1,
        time="15",
        partition="main",
    )
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    copy_code(tmp_path, user_dirs=())
    # Of a thousand processes on two cores, the last ends long after the first, when srun would end it.
    write_environment(tmp_path, ["SLURM_WAIT=120"])
    with slurm_cluster(folder, num_nodes=NODES) as cluster, talking_to(cluster):
        executor = submitit.SlurmExecutor(recipe.output_dir / "logs")
        executor.update_parameters(**sbatch_parameters(recipe, snapshot=tmp_path))
        light_rank = make_light_rank(rendezvous.__file__, str(records_dir), rendezvous.port_of(recipe.output_dir))
        job_id = executor.submit(light_rank).job_id
        log = recipe.output_dir / "logs" / f"{job_id}_0_log.out"
        wait_for(
            lambda: cluster.state(job_id) not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), 600, "the job"
        )
        assert cluster.state(job_id) == "COMPLETED", log.read_text()[-3000:] if log.exists() else "no log"

    records = [json.loads((records_dir / f"{rank}.json").read_text()) for rank in range(WORLD_SIZE)]
    assert [record["rank"] for record in records] == list(range(WORLD_SIZE))
    assert len(list((recipe.output_dir / "logs").glob("*_log.*"))) == NODES, "one log for each node"
    assert sorted(records[0]["met"]) == list(range(1, WORLD_SIZE))
    assert {record["world_size"] for record in records} == {WORLD_SIZE}
    assert len({record["init_method"] for record in records}) == 1
    assert len({record["machine"] for record in records}) == NODES
    for rank, record in enumerate(records):
        assert record["local_rank"] == rank % RANKS_PER_NODE
        assert record["host"] == record["machine"] == record["hosts"][rank // RANKS_PER_NODE]
        assert record["arguments"][:4] == ["--distributed-world-size", "1024", "--distributed-rank", str(rank)]
        assert record["arguments"][-2:] == ["--device-id", str(rank % RANKS_PER_NODE)]

"""The documented commands of torchrun and the files for Kubernetes: torch's and our own parsers accept them."""

import re
import shlex

import pytest
import yaml
from torch.distributed import run as torchrun

from roberta_plugin.cli import build_parser
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "examples" / "README.torchrun.md").read_text()
COMMANDS = [
    shlex.split(text.replace("\\\n", " ")) for text in re.findall(r"^torchrun (?:.*\\\n)*.*$", PAGE, flags=re.MULTILINE)
]
FILES = sorted((REPOSITORY / "examples" / "kubernetes").glob("*.yaml"))
# The fields of Kubeflow's PyTorchJob (kubeflow.org/v1) and of a pod that the files may have; a type, or a dict of fields.
POD = {
    "spec": {
        "terminationGracePeriodSeconds": int,
        "containers": [
            {
                "name": str,
                "image": str,
                "command": [str],
                "args": [str],
                "resources": {"limits": {"nvidia.com/gpu": int, "cpu": int, "memory": str}},
                "volumeMounts": [{"name": str, "mountPath": str}],
            }
        ],
        "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str}, "emptyDir": {"medium": str}}],
    }
}
REPLICAS = {"replicas": int, "restartPolicy": str, "template": POD}
JOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str},
    "spec": {
        "nprocPerNode": str,
        "runPolicy": {"backoffLimit": int},
        "elasticPolicy": {"minReplicas": int, "maxReplicas": int, "maxRestarts": int, "rdzvBackend": str},
        "pytorchReplicaSpecs": {"Master": REPLICAS, "Worker": REPLICAS},
    },
}


def parsed(words):
    """What torchrun and `roberta train` read from a command."""
    of_torch = torchrun.get_args_parser().parse_args(words)
    program, *arguments = [of_torch.training_script, *of_torch.training_script_args]
    assert (program, of_torch.no_python) == ("roberta", True)
    return of_torch, build_parser("train").parse_args(arguments)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[1:4]))
def test_a_documented_command_is_one(words):
    of_torch, ours = parsed(words[1:])
    assert of_torch.nproc_per_node == "8"
    assert (REPOSITORY / ours.config).is_file()
    assert ours.train == ["data-bin/pretrain"]


def test_static_and_elastic_commands_are_documented():
    assert {parsed(words[1:])[0].nnodes for words in COMMANDS} == {"1:1", "4", "2:4"}


def check(value, schema, where):
    """Refuse fields that there are not, and values of other types."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), where
        assert value.keys() <= schema.keys(), f"{where}: {value.keys() - schema.keys()}"
        for name, item in value.items():
            check(item, schema[name], f"{where}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list) and value, where
        for item in value:
            check(item, schema[0], f"{where}[]")
    else:
        assert type(value) is schema, f"{where} is {value!r}, not {schema.__name__}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_job_for_kubernetes_has_the_operators_fields(path):
    job = yaml.safe_load(path.read_text())
    check(job, JOB, path.name)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    replicas = job["spec"]["pytorchReplicaSpecs"]
    for name, replica in replicas.items():
        assert replica["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch", "the operator gives its variables to this container only"
        assert container["resources"]["limits"]["nvidia.com/gpu"] == int(job["spec"]["nprocPerNode"])
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["command"][0] == "torchrun"
        _, ours = parsed([*container["command"][1:], *container["args"]])
        assert (ours.output_dir, ours.train) == ("/lab/runs/base", ["/lab/data-bin/pretrain"])
        assert name == "Worker" or replica["replicas"] == 1
    elastic = job["spec"].get("elasticPolicy")
    assert ("Master" in replicas) == (elastic is None), "an elastic job has workers only"
    if elastic:
        assert elastic["minReplicas"] <= replicas["Worker"]["replicas"] <= elastic["maxReplicas"]
        assert elastic["rdzvBackend"] in ("c10d", "etcd", "etcd-v2")


def test_there_are_a_fixed_and_an_elastic_job():
    assert [path.stem for path in FILES] == ["pytorchjob", "pytorchjob_elastic"]

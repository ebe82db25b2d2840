"""Two ends of attempts that the tests vary."""

from roberta_plugin.launch.restart import End, Limits

LIMITS = Limits(max_requeues=100, num_nodes=4, preemption_code=140)
STARTING = End(job_id="7", attempt=3, code=1, phase="starting", has_checkpoint=True)
TRAINING = End(job_id="7", attempt=3, code=1, phase="training", has_checkpoint=True, has_newer_checkpoint=True)

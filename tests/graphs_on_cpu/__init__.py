"""The plugin for --user-dir, where --cuda-graphs works on a CPU by a stand-in."""

from functools import partial

import roberta_plugin  # noqa: F401
from roberta_plugin.models import cuda_graphs, encoder
from tests.graph_stand_in import CpuRecorder

cuda_graphs.TIMES_AS_IT_IS = 1
encoder.LayerGraphs = partial(cuda_graphs.LayerGraphs, recorder=CpuRecorder)

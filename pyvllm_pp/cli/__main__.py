"""``python -m pyvllm_pp.cli``: the same as ``pyvllm-pp``."""

from pyvllm_pp.cli.main import app

app(prog_name="pyvllm-pp")

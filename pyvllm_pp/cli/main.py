"""``pyvllm-pp``: the list of commands."""

import typer

from pyvllm_pp.cli import bench
from pyvllm_pp.cli.demo import demo
from pyvllm_pp.cli.doctor import doctor
from pyvllm_pp.cli.plan import plan
from pyvllm_pp.cli.verify import verify

app = typer.Typer(
    help="Pipeline parallelism with prefill context parallelism in vLLM.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(demo)
app.command()(verify)
app.command()(plan)
app.command()(doctor)
app.add_typer(bench.app, name="bench")

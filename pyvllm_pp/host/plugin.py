"""Entry points that vLLM calls by itself."""

from pyvllm_pp.host.settings import is_disabled


def register() -> None:
    """General plugin: nothing to do yet; safe to call any number of times."""


def platform() -> str | None:
    """Platform plugin: our CPU platform on vLLM's CPU build, else None (no change)."""
    if is_disabled():
        _withdraw_triton_entry()
        return None
    from vllm.platforms import cpu_platform_plugin

    # Other CPU platforms (Zen) bring kernels of their own and stay as they are.
    if cpu_platform_plugin() != "vllm.platforms.cpu.CpuPlatform":
        return None
    return "pyvllm_pp.host.cpu.platform.PipelineCpuPlatform"


def _withdraw_triton_entry() -> None:
    """Take our `cpu` entry out of Triton's list, where vLLM has not looked yet.

    vLLM resolves its platform before it asks whether Triton is usable.
    """
    try:
        from triton.backends import backends
    except ImportError:
        return
    entry = backends.get("cpu")
    if entry is not None and entry.driver.__module__.startswith("pyvllm_pp."):
        del backends["cpu"]

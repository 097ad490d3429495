"""Host tests run vLLM's own modules on CPU tensors, in this process."""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

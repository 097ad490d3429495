"""vLLM's CPU build: platform, worker, Triton entry and native kernels."""

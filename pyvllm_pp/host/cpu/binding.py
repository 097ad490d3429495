"""Which cores each worker computes on."""

import os

# vLLM's own variable: one CPU list a worker, in the order of local ranks.
BIND_ENV = "VLLM_CPU_OMP_THREADS_BIND"
# What we last wrote there: a value of the user's is never touched.
_OURS_ENV = "PYVLLM_PP_THREADS_BIND"


def share_cores(cores: list[int], num_workers: int) -> str:
    """Even shares of `cores`, as vLLM's variable takes them.

    With more workers than cores, cores are shared in turn:

    >>> share_cores([0, 1, 2, 3], 2)
    '0,1|2,3'
    >>> share_cores([0, 1], 4)
    '0|1|0|1'

    Raises:
        ValueError: no cores or no workers.
    """
    if not cores or num_workers < 1:
        raise ValueError(
            f"cannot share {len(cores)} cores between {num_workers} workers, expected "
            "at least one of each"
        )
    if num_workers >= len(cores):
        shares = [[cores[i % len(cores)]] for i in range(num_workers)]
    else:
        size, extra = divmod(len(cores), num_workers)
        ends = [size * (i + 1) + min(i + 1, extra) for i in range(num_workers)]
        starts = [0, *ends[:-1]]
        shares = [cores[a:b] for a, b in zip(starts, ends, strict=True)]
    return "|".join(",".join(map(str, share)) for share in shares)


def bind_threads(num_workers: int, num_numa_nodes: int, cores: list[int]) -> str | None:
    """Bind the workers where vLLM's own binding, a NUMA node each, cannot.

    Returns:
        The binding that was set, or None where the choice is vLLM's or the user's.
    """
    given = os.environ.get(BIND_ENV, "auto")
    is_ours = given == os.environ.get(_OURS_ENV)
    if not is_ours and given != "auto":
        return None
    if num_workers <= num_numa_nodes:
        if is_ours:
            del os.environ[BIND_ENV]
        return None
    binding = share_cores(cores, num_workers)
    os.environ[BIND_ENV] = os.environ[_OURS_ENV] = binding
    return binding

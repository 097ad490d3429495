"""Room 1: the scheduled batch in global request order, as host arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Batch(NamedTuple):
    """Host arrays of one global batch; vLLM's ``InputBatch`` has each under this name.

    The core takes them as they are: exact dtype, contiguous, never copied.
    """

    num_scheduled_tokens: Int32Array  # [num_reqs]
    is_prefilling: BoolArray  # [num_reqs]
    query_start_loc: Int32Array  # [num_reqs + 1] or longer (graph padding)
    num_computed_tokens: Int32Array  # [num_reqs]
    prefill_len: Int32Array  # [num_reqs]
    idx_mapping: Int64Array  # [num_reqs] batch row -> request slot

"""Random logits and requests for the tests of sampling kernels."""

from typing import Any

import numpy as np
import torch

MAX_REQS = 9
# Below, at and above what vectors and blocks hold; one block more than 1,024 and 8,192.
VOCAB_SIZES = (1, 7, 32, 1000, 1024, 1025, 9000)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Rows:
    """Rows of logits, some of a request, behind a wider memory.

    Attributes:
        logits: ``[num_rows, vocab_size]``, rows further apart than they are long.
        idx_mapping: ``[num_rows]`` request slots.
    """

    def __init__(
        self,
        seed: int,
        dtype: torch.dtype = torch.float32,
        *,
        num_rows: int | None = None,
        vocab_size: int | None = None,
        special: bool = False,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_rows = (3, 0, 1, 6)[seed % 4] if num_rows is None else num_rows
        self.vocab_size = (
            VOCAB_SIZES[seed % len(VOCAB_SIZES)] if vocab_size is None else vocab_size
        )
        wide = self.rng.normal(0, 3, (self.num_rows, self.vocab_size + 5))
        if special:
            for value in (np.inf, -np.inf, np.nan):
                wide[self.rng.random(wide.shape) < 0.1] = value
        self.logits = torch.from_numpy(wide).to(dtype)[:, : self.vocab_size]
        index_dtype = torch.int32 if seed % 2 else torch.int64
        slots = self.rng.permutation(MAX_REQS)[: self.num_rows]
        self.idx_mapping = torch.from_numpy(slots).to(index_dtype)

    def ints(
        self, low: int, high: int, size: Any, dtype: str = "int32"
    ) -> torch.Tensor:
        return torch.from_numpy(self.rng.integers(low, high, size).astype(dtype))

    def reals(self, choices: list[float]) -> torch.Tensor:
        """One of `choices` a request slot."""
        return torch.from_numpy(self.rng.choice(choices, MAX_REQS).astype("float32"))

    def tokens(self, size: Any, dtype: str = "int32") -> torch.Tensor:
        return self.ints(0, self.vocab_size, size, dtype)

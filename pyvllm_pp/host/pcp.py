"""The PCP manager of a runner, on the core: plan, tables, local batch, restore."""

from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.v1.attention.backends.utils import get_dcp_local_seq_lens
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.pcp_manager import PCPManager

from pyvllm_pp.batch import Batch
from pyvllm_pp.host.compat import adapter
from pyvllm_pp.host.local_views import LocalViews, local_batch
from pyvllm_pp.host.restore import (
    Readers,
    RestoreCounts,
    SampledRows,
    Selection,
)
from pyvllm_pp.host.settings import Restore, Settings
from pyvllm_pp.host.staging import DeviceTables, Staging
from pyvllm_pp.plan import Partition, PlanConfig, Planner
from pyvllm_pp.tables import StepTables, TableWriter, device_arena_bytes

# What this version's local batch has beside 0.32's.
_Face = adapter().ManagerFace


class NativePCPManager(_Face, PCPManager):  # type: ignore[valid-type,misc]
    """vLLM's PCP manager with its host work done by the core.

    ``get_num_tokens_for_dispatch`` makes the plan of a step, ``partition_batch`` writes
    its tables and the PCP-local batch. Everything else is vLLM's own and reads the
    tables made here.
    """

    settings: ClassVar[Settings] = Settings()
    # Memory of a step stays untouched while a step that reads it can be in flight.
    ring_depth: ClassVar[int] = 3
    # Who decides which rows a step restores; None: all of them.
    readers: ClassVar[Readers | None] = None

    @classmethod
    def configured(
        cls,
        settings: Settings,
        max_concurrent_batches: int,
        readers: Readers | None = None,
    ) -> type:
        """The class for a run: vLLM constructs it without a place for settings.

        Without `readers` all rows are restored, whatever the settings.
        """
        is_dense = settings.restore == Restore.dense.name
        values = {
            "settings": settings,
            "ring_depth": max(2, max_concurrent_batches) + 1,
            "readers": None if is_dense else readers,
        }
        return type(cls.__name__, (cls,), values)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        buffers = self.input_buffers
        config = PlanConfig(
            pcp_size=self.pcp_world_size,
            dcp_size=self.dcp_world_size,
            shard_decode_requests=self.shard_decode_requests,
            partition=self.settings.partition_policy(),
            max_num_reqs=buffers.max_num_reqs // 2,
            max_num_tokens=buffers.max_num_tokens,
        )
        self._planner = Planner(config)
        self._writer = TableWriter(config, self.pcp_rank)
        self._staging = Staging(
            device_arena_bytes(config), self.ring_depth, self.device
        )
        self._device_tables: DeviceTables | None = None
        self._views = LocalViews(buffers)
        self._selection: Selection | None = None
        self.restore_counts = RestoreCounts()

    @staticmethod
    def validate_config(vllm_config: VllmConfig, supports_mm_inputs: bool) -> None:
        """Refuse what cannot work, all in one place, before anything is built.

        Raises:
            NotImplementedError: names the configuration.
        """
        view = adapter().validation_view(vllm_config)
        PCPManager.validate_config(view, supports_mm_inputs)
        parallel = vllm_config.parallel_config
        if parallel.prefill_context_parallel_size == 1:
            return
        if vllm_config.model_config.runner_type == "pooling":
            raise NotImplementedError(
                "PCP does not support pooling models: vLLM pools over the PCP-local "
                "batch."
            )
        settings = Settings.read(vllm_config.additional_config)
        dcp_size = parallel.decode_context_parallel_size
        if settings.partition == Partition.balanced.name and dcp_size > 1:
            raise NotImplementedError(
                "partition 'balanced' does not support DCP, got "
                f"decode_context_parallel_size={dcp_size}: use 'dual_chunk_swap'."
            )

    def get_num_tokens_for_dispatch(
        self, num_scheduled_tokens: NDArray[np.int32], is_prefilling: NDArray[np.bool_]
    ) -> int:
        """Largest rank's tokens of the step's plan, before graph padding."""
        return self._planner.max_rank_tokens(num_scheduled_tokens, is_prefilling)

    def partition_batch(self, input_batch: InputBatch, batch_desc: Any) -> InputBatch:
        """Make the PCP-local batch that the forward runs on; keep the global one."""
        tables = self._write_tables(input_batch, batch_desc)
        if tables.is_new or self._device_tables is None:
            self._device_tables = self._staging.commit(tables.device_sizes)
            self._take_tables(tables, self._device_tables)
        device_tables = self._device_tables
        self._global_batch = input_batch
        self._gather_tokens(input_batch, tables, device_tables)
        self._local_batch = self._local_view(input_batch, tables, device_tables)
        return self._local_batch

    def restore_for_sampling(
        self, hidden_states: torch.Tensor, aux_hidden_states: list[torch.Tensor] | None
    ) -> tuple[torch.Tensor | SampledRows, list[torch.Tensor] | None, InputBatch]:
        """Bring the rows that the step reads to every rank, in global order.

        Returns:
            All rows ``[num_tokens, hidden_size]`` or those of ``logits_indices``; the
            auxiliary states, all rows; the global batch.
        """
        batch, selection = self.global_batch, self._selection
        assert selection is not None
        if (
            self.readers is None
            or aux_hidden_states is not None
            or not selection.saves
            or self.readers.read_all_rows(batch)
        ):
            num_rows = selection.padded_num_tokens * self.pcp_world_size
            self.restore_counts.add_dense(num_rows)
            restored: tuple[Any, Any, InputBatch] = super().restore_for_sampling(
                hidden_states, aux_hidden_states
            )
            return restored
        self.restore_counts.add_selected(sum(selection.num_rows))
        return selection.restore(hidden_states, batch), None, batch

    def pyvllm_pp_report(self) -> dict[str, Any]:
        """What this manager has done so far."""
        return asdict(self.restore_counts)

    def _write_tables(self, input_batch: InputBatch, batch_desc: Any) -> StepTables:
        padded_num_tokens = padded_num_reqs = 0
        if batch_desc.cg_mode != CUDAGraphMode.NONE:
            padded_num_tokens = batch_desc.num_tokens
            if batch_desc.cg_mode == CUDAGraphMode.FULL:
                if input_batch.has_prefill:
                    raise RuntimeError(
                        "PCP FULL graphs require a decode-only batch, got one with "
                        "prefills"
                    )
                padded_num_reqs = batch_desc.num_reqs or 0
        batch = Batch(
            num_scheduled_tokens=input_batch.num_scheduled_tokens,
            is_prefilling=input_batch.is_prefilling_np,
            query_start_loc=input_batch.query_start_loc_np,
            num_computed_tokens=input_batch.num_computed_tokens_np,
            prefill_len=input_batch.prefill_len_np,
            idx_mapping=input_batch.idx_mapping_np,
        )
        plan = self._planner.plan(
            batch.num_scheduled_tokens, batch.is_prefilling, batch.num_computed_tokens
        )
        return self._writer.write(
            plan,
            batch,
            self._staging.peek(),
            padded_num_tokens=padded_num_tokens,
            padded_num_reqs=padded_num_reqs,
            reuse=True,
        )

    def _take_tables(self, tables: StepTables, device: DeviceTables) -> None:
        """What stays as it is while the device tables do."""
        self._hidden_restore_idx = device.hidden_restore_idx
        self._padded_gather_idx = device.padded_gather_idx
        self._gathered_kv_write_mask = device.gathered_kv_write_mask
        self._selection = Selection(
            rank=self.pcp_rank,
            num_rows=tables.num_selected_rows,
            local_idx=device.selected_local_idx,
            restore_idx=device.selected_restore_idx,
            padded_num_tokens=tables.padded_num_tokens,
        )
        self._standing_fields = self._fields_of_tables(tables, device)
        start = self.pcp_rank * tables.padded_num_tokens
        own = slice(start, start + tables.padded_num_tokens)
        # vLLM's own, which it also gathers embeddings with.
        self._local_gather_idx = device.padded_gather_idx[own]
        if self._views.tokens(tables.padded_num_tokens).host is None:
            self._local_is_padding = device.gathered_is_padding[own]

    def _gather_tokens(
        self, input_batch: InputBatch, tables: StepTables, device_tables: DeviceTables
    ) -> None:
        """Bring this rank's tokens and the lengths of its rows into captured buffers.

        One call of the core where the tensors are the host's, otherwise operations of
        the device.
        """
        num_tokens, padded = tables.num_local_tokens, tables.padded_num_tokens
        views = self._views.tokens(padded)
        rows = self._views.rows(tables.padded_num_reqs)
        if views.host is not None and rows.host is not None:
            self._writer.write_local(
                input_batch.input_ids.numpy(),
                input_batch.positions.numpy(),
                views.host,
                rows.host,
                self._views.query_start_loc_np,
            )
            return
        gather_idx = self._local_gather_idx
        torch.index_select(input_batch.input_ids, 0, gather_idx, out=views.input_ids)
        # Positions come from the device: after a rejected draft the host's lag behind.
        torch.index_select(input_batch.positions, 0, gather_idx, out=views.positions)
        views.is_padding.copy_(self._local_is_padding)
        if padded > num_tokens:
            views.input_ids[num_tokens:].zero_()
            views.positions[num_tokens:].zero_()
        self.input_buffers.query_start_loc.copy_(device_tables.query_start_loc)
        self._write_seq_lens(rows.seq_lens, device_tables.logits_indices, tables)

    def _fields_of_tables(
        self, tables: StepTables, device_tables: DeviceTables
    ) -> dict[str, Any]:
        """Fields of the local batch that stay as long as the device tables."""
        host, num_reqs = tables.host, tables.num_local_reqs
        tokens = self._views.tokens(tables.padded_num_tokens)
        rows = self._views.rows(tables.padded_num_reqs)
        return {
            "num_reqs": num_reqs,
            "num_reqs_after_padding": tables.padded_num_reqs,
            "idx_mapping": device_tables.idx_mapping,
            "idx_mapping_np": host.idx_mapping,
            "expanded_idx_mapping": device_tables.idx_mapping,
            "expanded_local_pos": self._views.zeros(num_reqs),
            "num_scheduled_tokens": host.num_scheduled_tokens,
            "num_tokens": tables.num_local_tokens,
            "num_tokens_after_padding": tables.padded_num_tokens,
            "num_draft_tokens": 0,
            "num_draft_tokens_per_req": None,
            "query_start_loc": rows.query_start_loc,
            "query_start_loc_np": host.query_start_loc,
            "seq_lens": rows.seq_lens,
            "dcp_local_seq_lens": None,
            "max_seq_len_np": None,
            "prefill_runs_as_decode_np": None,
            "input_ids": tokens.input_ids,
            "positions": tokens.positions,
            # Local logits are never sampled: the restored global rows are.
            "logits_indices": device_tables.logits_indices,
            "cu_num_logits": device_tables.cu_num_logits,
            "cu_num_logits_np": host.cu_num_logits,
            "prompt_lens": None,
        }

    def _local_view(
        self, input_batch: InputBatch, tables: StepTables, device_tables: DeviceTables
    ) -> InputBatch:
        host = tables.host
        has_prefill = 1 in host.is_prefilling.tobytes()
        values = {
            **self._standing_fields,
            "seq_lens_cpu_upper_bound": torch.from_numpy(host.seq_lens_upper_bound),
            "num_computed_tokens_np": host.start_pos,
            "prefill_len_np": host.prefill_len,
            "num_computed_prefill_tokens_np": host.num_computed_prefill_tokens,
            "is_prefilling_np": host.is_prefilling,
            "has_prefill": has_prefill,
            "decode_graph_eligible": not has_prefill,
            "is_padding": self.local_is_padding(
                self._views.tokens(tables.padded_num_tokens).is_padding,
                device_tables.gathered_is_padding,
            ),
            **self.local_extras(
                input_batch, tables, self._dcp_upper_bound(input_batch, tables)
            ),
        }
        return local_batch(input_batch, host.req_idx, values)

    def _write_seq_lens(
        self, seq_lens: torch.Tensor, last_rows: torch.Tensor, tables: StepTables
    ) -> None:
        """Sequence lengths of the rows: each row's last position plus one."""
        if tables.num_local_tokens == 0:
            seq_lens.zero_()
            return
        num_reqs = tables.num_local_reqs
        if tables.padded_num_reqs > num_reqs:
            seq_lens[num_reqs:].zero_()
            seq_lens, last_rows = seq_lens[:num_reqs], last_rows[:num_reqs]
        last_positions = self.input_buffers.positions.index_select(0, last_rows)
        torch.add(last_positions, 1, out=seq_lens)

    def _dcp_upper_bound(
        self, input_batch: InputBatch, tables: StepTables
    ) -> torch.Tensor | None:
        """The largest DCP shard of each row's whole request, equal on all ranks."""
        if self.dcp_world_size == 1:
            return None
        request_seq_lens = (
            input_batch.num_computed_tokens_np + input_batch.num_scheduled_tokens
        )[tables.host.req_idx]
        bound = torch.zeros(tables.padded_num_reqs, dtype=torch.int32)
        bound[: tables.num_local_reqs] = get_dcp_local_seq_lens(
            torch.from_numpy(request_seq_lens),
            self.dcp_world_size,
            0,
            self.cp_interleave,
        )
        return bound

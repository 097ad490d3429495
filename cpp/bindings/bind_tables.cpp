#include <pybind11/stl.h>

#include "bind_batch.h"
#include "pyvllm_pp/tables.h"
#include "rooms.h"

namespace pyvllm_pp::bindings {
namespace {

constexpr std::string_view kRoom = "tables";

py::tuple standing_tuple(const HostTables& host, const py::object& owner) {
  return py::make_tuple(view(host.req_idx, owner), view(host.idx_mapping, owner),
                        view(host.num_scheduled_tokens, owner), view(host.query_start_loc, owner),
                        view(host.cu_num_logits, owner));
}

py::tuple moving_tuple(const HostTables& host, const py::object& owner) {
  return py::make_tuple(view(host.start_pos, owner), view(host.prefill_len, owner),
                        view(host.num_computed_prefill_tokens, owner),
                        view(host.seq_lens_upper_bound, owner), view(host.is_prefilling, owner));
}

/// Bytes of each device table, in the order in which they lie in the arena.
py::tuple device_sizes(const DeviceTables& device) {
  return py::make_tuple(
      device.hidden_restore_idx.size_bytes(), device.padded_gather_idx.size_bytes(),
      device.idx_mapping.size_bytes(), device.selected_local_idx.size_bytes(),
      device.selected_restore_idx.size_bytes(), device.query_start_loc.size_bytes(),
      device.cu_num_logits.size_bytes(), device.logits_indices.size_bytes(),
      device.gathered_kv_write_mask.size_bytes(), device.gathered_is_padding.size_bytes());
}

py::tuple as_tuple(std::span<const std::int32_t> values) {
  py::tuple tuple(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    tuple[i] = values[i];
  }
  return tuple;
}

/// Fresh host memory a step: vLLM keeps these arrays beyond the step.
py::tuple write(TableWriter& writer, const Plan& plan, const py::array& num_scheduled_tokens,
                const py::array& is_prefilling, const py::array& query_start_loc,
                const py::array& num_computed_tokens, const py::array& prefill_len,
                const py::array& idx_mapping, std::int32_t padded_num_tokens,
                std::int32_t padded_num_reqs, py::array device_arena, bool reuse) {
  const BatchView batch{
      .scheduled = scheduled_view(num_scheduled_tokens, is_prefilling),
      .query_start_loc = as_span<std::int32_t>(kBatchRoom, "query_start_loc", query_start_loc),
      .num_computed_tokens =
          as_span<std::int32_t>(kBatchRoom, "num_computed_tokens", num_computed_tokens),
      .prefill_len = as_span<std::int32_t>(kBatchRoom, "prefill_len", prefill_len),
      .idx_mapping = as_span<std::int64_t>(kBatchRoom, "idx_mapping", idx_mapping)};
  const auto arena =
      std::as_writable_bytes(as_writable_span<std::uint8_t>(kRoom, "device_arena", device_arena));
  const auto sizes =
      writer.sizes(plan, {.num_tokens = padded_num_tokens, .num_reqs = padded_num_reqs});
  py::array_t<std::uint8_t> memory(static_cast<py::ssize_t>(writer.host_bytes(sizes)));
  const auto host_memory = std::as_writable_bytes(
      std::span(memory.mutable_data(), static_cast<std::size_t>(memory.size())));
  bool is_new = true;
  {
    // The arguments and `memory` hold every array; nothing here touches Python.
    const py::gil_scoped_release release;
    if (reuse) {
      is_new = writer.update(plan, batch, sizes, arena, host_memory);
    } else {
      writer.write(plan, batch, sizes, arena, host_memory);
    }
  }
  const auto& host = writer.host();
  if (!is_new) {  // what stands is in memory of the step that wrote it
    return py::make_tuple(py::none(), moving_tuple(host, memory));
  }
  const auto standing =
      py::make_tuple(sizes.num_local_reqs, sizes.num_local_tokens, sizes.padded_num_reqs,
                     sizes.padded_num_tokens, as_tuple(writer.num_selected_rows()),
                     device_sizes(writer.device()), standing_tuple(host, memory));
  return py::make_tuple(standing, moving_tuple(host, memory));
}

void write_local(const TableWriter& writer, const Plan& plan, const py::array& input_ids,
                 const py::array& positions, py::array local_input_ids, py::array local_positions,
                 py::array is_padding, py::array seq_lens, py::array query_start_loc) {
  const LocalTokens local{
      .input_ids = as_writable_span<std::int32_t>(kRoom, "local input_ids", local_input_ids),
      .positions = as_writable_span<std::int64_t>(kRoom, "local positions", local_positions),
      .is_padding = as_writable_span<std::uint8_t>(kRoom, "local is_padding", is_padding),
      .seq_lens = as_writable_span<std::int32_t>(kRoom, "local seq_lens", seq_lens),
      .query_start_loc =
          as_writable_span<std::int32_t>(kRoom, "local query_start_loc", query_start_loc)};
  writer.write_local(plan, as_span<std::int32_t>(kRoom, "input_ids", input_ids),
                     as_span<std::int64_t>(kRoom, "positions", positions), local);
}

ArenaRing ring_over(const std::vector<py::array>& buffers) {
  std::vector<std::span<std::byte>> arenas;
  arenas.reserve(buffers.size());
  for (auto buffer : buffers) {
    arenas.push_back(
        std::as_writable_bytes(as_writable_span<std::uint8_t>(kRoom, "arena", buffer)));
  }
  return ArenaRing(std::move(arenas));
}

/// The ring over NumPy arrays, which it keeps alive; hands out the array itself.
class BufferRing {
 public:
  explicit BufferRing(std::vector<py::array> buffers)
      : buffers_(std::move(buffers)), ring_(ring_over(buffers_)) {}

  py::tuple next() {
    ring_.next();
    return py::make_tuple(ring_.index(), buffers_[ring_.index()]);
  }
  [[nodiscard]] std::size_t depth() const { return ring_.depth(); }

 private:
  std::vector<py::array> buffers_;
  ArenaRing ring_;
};

}  // namespace

void bind_tables(py::module_& module) {
  module.def("device_arena_bytes", &device_arena_bytes, py::arg("config"));
  module.def("host_arena_bytes", &host_arena_bytes, py::arg("config"));

  py::class_<TableWriter>(module, "TableWriter")
      .def(py::init<const PlanConfig&, std::int32_t>(), py::arg("config"), py::arg("rank"))
      .def("write", &write, py::kw_only(), py::arg("plan"), py::arg("num_scheduled_tokens"),
           py::arg("is_prefilling"), py::arg("query_start_loc"), py::arg("num_computed_tokens"),
           py::arg("prefill_len"), py::arg("idx_mapping"), py::arg("padded_num_tokens"),
           py::arg("padded_num_reqs"), py::arg("device_arena"), py::arg("reuse"))
      .def("write_local", &write_local, py::arg("plan"), py::arg("input_ids"), py::arg("positions"),
           py::arg("local_input_ids"), py::arg("local_positions"), py::arg("is_padding"),
           py::arg("seq_lens"), py::arg("query_start_loc"));

  py::class_<BufferRing>(module, "ArenaRing")
      .def(py::init<std::vector<py::array>>(), py::arg("arenas"))
      .def("next", &BufferRing::next)
      .def_property_readonly("depth", &BufferRing::depth);
}

}  // namespace pyvllm_pp::bindings

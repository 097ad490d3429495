#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <optional>

#include "bind_batch.h"
#include "pyvllm_pp/feedback.h"
#include "rooms.h"

namespace pyvllm_pp::bindings {
namespace {

constexpr std::string_view kRoom = "feedback";

/// The mask, or None when no request needs its token.
py::object mask_or_none(const py::array& num_scheduled_tokens, const py::array& is_prefilling,
                        const py::array& num_computed_tokens, const py::array& prefill_len,
                        const std::optional<py::array>& max_seq_len) {
  const BatchView batch{
      .scheduled = scheduled_view(num_scheduled_tokens, is_prefilling),
      .query_start_loc = {},
      .num_computed_tokens =
          as_span<std::int32_t>(kBatchRoom, "num_computed_tokens", num_computed_tokens),
      .prefill_len = as_span<std::int32_t>(kBatchRoom, "prefill_len", prefill_len),
      .idx_mapping = {}};
  const auto limit = max_seq_len.has_value()
                         ? as_span<std::int32_t>(kBatchRoom, "max_seq_len", *max_seq_len)
                         : std::span<const std::int32_t>{};
  py::array_t<bool> mask(num_scheduled_tokens.shape(0));
  const auto out = std::span(mask.mutable_data(), static_cast<std::size_t>(mask.size()));
  if (max_seq_len.has_value() && limit.size() != out.size()) {
    fail(kRoom, "max_seq_len has ", limit.size(), " entries, expected ", out.size());
  }
  return need_sampled_mask(batch, limit, out) == 0 ? py::object(py::none()) : py::object(mask);
}

py::tuple consume(FeedbackRing& ring) {
  py::array_t<std::int64_t> idx_mapping(ring.due_num_reqs());
  const auto consumed = ring.consume(
      std::span(idx_mapping.mutable_data(), static_cast<std::size_t>(idx_mapping.size())));
  return py::make_tuple(consumed, idx_mapping);
}

}  // namespace

void bind_feedback(py::module_& module) {
  py::native_enum<EntryState>(module, "EntryState", "enum.Enum")
      .value("empty", EntryState::empty)
      .value("posted", EntryState::posted)
      .value("ready", EntryState::ready)
      .finalize();
  py::native_enum<Consumed>(module, "Consumed", "enum.Enum")
      .value("nothing", Consumed::nothing)
      .value("none", Consumed::none)
      .value("filtered", Consumed::filtered)
      .value("all", Consumed::all)
      .finalize();

  module.def("need_sampled_mask", &mask_or_none, py::kw_only(), py::arg("num_scheduled_tokens"),
             py::arg("is_prefilling"), py::arg("num_computed_tokens"), py::arg("prefill_len"),
             py::arg("max_seq_len"));

  py::class_<FeedbackRing>(module, "FeedbackRing")
      .def(py::init<std::int32_t, std::int32_t>(), py::kw_only(), py::arg("depth"),
           py::arg("max_num_reqs"))
      .def("begin_step", &FeedbackRing::begin_step)
      .def(
          "post",
          [](FeedbackRing& ring, const py::array& idx_mapping, const py::array& need_sampled) {
            return ring.post(as_span<std::int64_t>(kRoom, "idx_mapping", idx_mapping),
                             as_span<bool>(kRoom, "need_sampled", need_sampled));
          },
          py::arg("idx_mapping"), py::arg("need_sampled"))
      .def("mark_ready", &FeedbackRing::mark_ready, py::arg("step"))
      .def("consume", &consume)
      .def("drop", &FeedbackRing::drop, py::arg("step"))
      .def("free_slot", &FeedbackRing::free_slot, py::arg("slot"))
      .def(
          "digest",
          [](const FeedbackRing& ring, const py::array& idx_mapping,
             const py::array& num_scheduled_tokens) {
            return ring.digest(
                as_span<std::int64_t>(kRoom, "idx_mapping", idx_mapping),
                as_span<std::int32_t>(kRoom, "num_scheduled_tokens", num_scheduled_tokens));
          },
          py::arg("idx_mapping"), py::arg("num_scheduled_tokens"))
      .def("state", &FeedbackRing::state, py::arg("step"))
      .def("generation", &FeedbackRing::generation, py::arg("slot"))
      .def_property_readonly("due_num_reqs", &FeedbackRing::due_num_reqs)
      .def_property_readonly("step", &FeedbackRing::step)
      .def_property_readonly("depth", &FeedbackRing::depth);
}

}  // namespace pyvllm_pp::bindings

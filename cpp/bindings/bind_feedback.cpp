#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "bind_batch.h"
#include "pyvllm_pp/feedback.h"
#include "rooms.h"

namespace pyvllm_pp::bindings {
namespace {

constexpr std::string_view kRoom = "feedback";

/// Empty for None; a given one must be as long as the batch, also where that has no requests.
std::span<const std::int32_t> limit_view(const std::optional<py::array>& max_seq_len,
                                         py::ssize_t num_reqs) {
  if (!max_seq_len.has_value()) {
    return {};
  }
  const auto limit = as_span<std::int32_t>(kBatchRoom, "max_seq_len", *max_seq_len);
  if (std::cmp_not_equal(limit.size(), num_reqs)) {
    fail(kRoom, "max_seq_len has ", limit.size(), " entries, expected ", num_reqs);
  }
  return limit;
}

/// What says which requests need their token: a batch without its slots.
BatchView lengths_view(const py::array& num_scheduled_tokens, const py::array& is_prefilling,
                       const py::array& num_computed_tokens, const py::array& prefill_len) {
  return {.scheduled = scheduled_view(num_scheduled_tokens, is_prefilling),
          .query_start_loc = {},
          .num_computed_tokens =
              as_span<std::int32_t>(kBatchRoom, "num_computed_tokens", num_computed_tokens),
          .prefill_len = as_span<std::int32_t>(kBatchRoom, "prefill_len", prefill_len),
          .idx_mapping = {}};
}

/// The mask, or None when no request needs its token.
py::object mask_or_none(const py::array& num_scheduled_tokens, const py::array& is_prefilling,
                        const py::array& num_computed_tokens, const py::array& prefill_len,
                        const std::optional<py::array>& max_seq_len) {
  const auto batch =
      lengths_view(num_scheduled_tokens, is_prefilling, num_computed_tokens, prefill_len);
  const auto limit = limit_view(max_seq_len, num_scheduled_tokens.shape(0));
  py::array_t<bool> mask(num_scheduled_tokens.shape(0));
  const auto out = std::span(mask.mutable_data(), static_cast<std::size_t>(mask.size()));
  return need_sampled_mask(batch, limit, out) == 0 ? py::object(py::none()) : py::object(mask);
}

/// One call a step: positional, because names cost as much as the work.
std::int32_t post_batch(FeedbackRing& ring, const py::array& num_scheduled_tokens,
                        const py::array& is_prefilling, const py::array& num_computed_tokens,
                        const py::array& prefill_len, const py::array& idx_mapping,
                        const std::optional<py::array>& max_seq_len) {
  auto batch = lengths_view(num_scheduled_tokens, is_prefilling, num_computed_tokens, prefill_len);
  batch.idx_mapping = as_span<std::int64_t>(kBatchRoom, "idx_mapping", idx_mapping);
  return ring.post_batch(
      batch, limit_view(max_seq_len, static_cast<py::ssize_t>(batch.idx_mapping.size())));
}

std::int32_t advance(FeedbackRing& ring, bool has_arrived, const std::optional<py::array>& header,
                     py::array idx_mapping) {
  const auto received = header.has_value() ? as_span<std::int64_t>(kRoom, "header", *header)
                                           : std::span<const std::int64_t>{};
  return ring.advance(has_arrived, received,
                      as_writable_span<std::int64_t>(kRoom, "idx_mapping", idx_mapping));
}

py::tuple consume(FeedbackRing& ring) {
  py::array_t<std::int64_t> idx_mapping(ring.due_num_reqs());
  const auto consumed = ring.consume(
      std::span(idx_mapping.mutable_data(), static_cast<std::size_t>(idx_mapping.size())));
  return py::make_tuple(consumed, idx_mapping);
}

void bind_enums(py::module_& module) {
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
}

}  // namespace

void bind_feedback(py::module_& module) {
  bind_enums(module);

  module.def("need_sampled_mask", &mask_or_none, py::kw_only(), py::arg("num_scheduled_tokens"),
             py::arg("is_prefilling"), py::arg("num_computed_tokens"), py::arg("prefill_len"),
             py::arg("max_seq_len"));

  module.def(
      "check_header",
      [](const py::array& received, std::int64_t step, std::int64_t digest,
         const py::array& idx_mapping) {
        check_header(as_span<std::int64_t>(kRoom, "header", received),
                     {.step = step, .digest = digest},
                     as_span<std::int64_t>(kRoom, "idx_mapping", idx_mapping));
      },
      py::arg("received"), py::arg("step"), py::arg("digest"), py::arg("idx_mapping"));

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
      .def("post_batch", &post_batch, py::arg("num_scheduled_tokens"), py::arg("is_prefilling"),
           py::arg("num_computed_tokens"), py::arg("prefill_len"), py::arg("idx_mapping"),
           py::arg("max_seq_len"))
      .def("advance", &advance, py::arg("has_arrived"), py::arg("header"), py::arg("idx_mapping"))
      .def("posted_digest", &FeedbackRing::posted_digest, py::arg("step"))
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

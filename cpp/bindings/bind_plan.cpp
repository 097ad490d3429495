#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <optional>

#include "bind_batch.h"
#include "pyvllm_pp/plan.h"
#include "rooms.h"

namespace pyvllm_pp::bindings {
namespace {

/// [num_segments, 4] int32: req_idx, token_start, num_tokens, local_start.
py::array_t<std::int32_t> segments_array(const Plan& plan, std::int32_t rank) {
  const auto segments = plan.segments(rank);
  py::array_t<std::int32_t> rows({static_cast<py::ssize_t>(segments.size()), py::ssize_t{4}});
  auto out = rows.mutable_unchecked<2>();
  for (py::ssize_t i = 0; i < out.shape(0); ++i) {
    const auto& segment = segments[static_cast<std::size_t>(i)];
    out(i, 0) = segment.req_idx;
    out(i, 1) = segment.token_start;
    out(i, 2) = segment.num_tokens;
    out(i, 3) = segment.local_start;
  }
  return rows;
}

}  // namespace

void bind_plan(py::module_& module) {
  py::native_enum<Partition>(module, "Partition", "enum.Enum")
      .value("dual_chunk_swap", Partition::dual_chunk_swap)
      .value("balanced", Partition::balanced)
      .finalize();

  py::class_<PlanConfig>(module, "PlanConfig")
      .def(
          py::init([](std::int32_t pcp_size, std::int32_t dcp_size, bool shard_decode_requests,
                      Partition partition, std::int32_t max_num_reqs, std::int32_t max_num_tokens) {
            return PlanConfig{
                .pcp_size = pcp_size,
                .dcp_size = dcp_size,
                .shard_decode_requests = shard_decode_requests,
                .partition = partition,
                .limits = {.max_num_reqs = max_num_reqs, .max_num_tokens = max_num_tokens}};
          }),
          py::kw_only(), py::arg("pcp_size"), py::arg("dcp_size"), py::arg("shard_decode_requests"),
          py::arg("partition"), py::arg("max_num_reqs"), py::arg("max_num_tokens"));

  py::class_<Plan>(module, "Plan")
      .def("segments", &segments_array, py::arg("rank"))
      .def("num_rank_tokens", &Plan::num_rank_tokens, py::arg("rank"))
      .def("is_replicated", &Plan::is_replicated, py::arg("req_idx"))
      .def_property_readonly("max_rank_tokens", &Plan::max_rank_tokens)
      .def_property_readonly("num_tokens", &Plan::num_tokens)
      .def_property_readonly("num_reqs", &Plan::num_reqs)
      .def_property_readonly("pcp_size", &Plan::pcp_size)
      .def_property_readonly("has_prefill", &Plan::has_prefill)
      .def_property_readonly("revision", &Plan::revision);

  py::class_<Planner>(module, "Planner")
      .def(py::init<const PlanConfig&>(), py::arg("config"))
      .def(
          "plan",
          [](Planner& planner, const py::array& num_scheduled_tokens,
             const py::array& is_prefilling,
             const std::optional<py::array>& num_computed_tokens) -> const Plan& {
            auto scheduled = scheduled_view(num_scheduled_tokens, is_prefilling);
            if (num_computed_tokens) {
              scheduled.num_computed_tokens =
                  as_span<std::int32_t>(kBatchRoom, "num_computed_tokens", *num_computed_tokens);
            }
            // The arguments hold the arrays; nothing below touches Python.
            const py::gil_scoped_release release;
            return planner.plan(scheduled);
          },
          py::arg("num_scheduled_tokens"), py::arg("is_prefilling"),
          py::arg("num_computed_tokens") = py::none(), py::return_value_policy::reference_internal)
      .def(
          "max_rank_tokens",
          [](Planner& planner, const py::array& num_scheduled_tokens,
             const py::array& is_prefilling) {
            const auto scheduled = scheduled_view(num_scheduled_tokens, is_prefilling);
            // As above.
            const py::gil_scoped_release release;
            return planner.max_rank_tokens(scheduled);
          },
          py::arg("num_scheduled_tokens"), py::arg("is_prefilling"));
}

}  // namespace pyvllm_pp::bindings

#pragma once

#include "arrays.h"
#include "pyvllm_pp/batch.h"

namespace pyvllm_pp::bindings {

inline constexpr std::string_view kBatchRoom = "batch";

inline ScheduledView scheduled_view(const py::array& num_scheduled_tokens,
                                    const py::array& is_prefilling) {
  return {.num_scheduled_tokens =
              as_span<std::int32_t>(kBatchRoom, "num_scheduled_tokens", num_scheduled_tokens),
          .is_prefilling = as_span<bool>(kBatchRoom, "is_prefilling", is_prefilling)};
}

}  // namespace pyvllm_pp::bindings

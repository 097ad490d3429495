#include "balancer.h"
#include "partition.h"
#include "pyvllm_pp/plan.h"

namespace pyvllm_pp {

void Planner::partition_balanced(const ScheduledView& scheduled) {
  balancer_->share_out(scheduled);
  add_rows(scheduled, balancer_->owners());
}

void Planner::add_cuts(std::int32_t req_idx, std::int32_t token_start) {
  for (std::int32_t rank = 0; const auto& cut : balancer_->cuts(req_idx)) {
    // The last rank to choose takes all that is left: one run.
    const bool is_one = cut.low_start + cut.num_low == cut.high_start;
    const auto num_low = cut.num_low + (is_one ? cut.num_high : 0);
    const auto num_high = is_one ? 0 : cut.num_high;
    if (num_low > 0) {
      add_segment(rank, req_idx, token_start + cut.low_start, num_low);
    }
    if (num_high > 0) {
      add_segment(rank, req_idx, token_start + cut.high_start, num_high);
    }
    ++rank;
  }
}

}  // namespace pyvllm_pp

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "pyvllm_pp/tables.h"
#include "support/batches.h"

/// One step through planner and writer, in memory that shows what was not written.
namespace pyvllm_pp::testing {

/// 8-byte aligned bytes, filled with a pattern that no table holds by chance.
class Memory {
 public:
  explicit Memory(std::size_t num_bytes)
      : num_bytes_(num_bytes), words_((num_bytes + 7) / 8, kPattern) {}

  [[nodiscard]] std::span<std::byte> span() {
    return std::as_writable_bytes(std::span(words_)).first(num_bytes_);
  }
  [[nodiscard]] bool is_untouched() const {
    return std::ranges::all_of(words_, [](std::uint64_t word) { return word == kPattern; });
  }

 private:
  static constexpr std::uint64_t kPattern = 0x5a5a5a5a5a5a5a5a;
  std::size_t num_bytes_;
  std::vector<std::uint64_t> words_;
};

/// A rank with arenas of the full size, as a runner has it.
class RankStep {
 public:
  explicit RankStep(const PlanConfig& config, std::int32_t rank = 0)
      : planner(config),
        writer(config, rank),
        device_arena(device_arena_bytes(config)),
        host_memory(host_arena_bytes(config)) {}

  const Plan& run(const OwnedBatch& batch, const Padding& padding = {}) {
    const auto& plan = planner.plan(batch.scheduled());
    writer.write(plan, batch.view(), writer.sizes(plan, padding), device_arena.span(),
                 host_memory.span());
    return plan;
  }
  [[nodiscard]] const DeviceTables& device() const { return writer.device(); }
  [[nodiscard]] const HostTables& host() const { return writer.host(); }

  Planner planner;
  TableWriter writer;
  Memory device_arena;
  Memory host_memory;
};

template <typename T>
std::vector<std::remove_const_t<T>> copy(std::span<T> values) {
  return {values.begin(), values.end()};
}

}  // namespace pyvllm_pp::testing

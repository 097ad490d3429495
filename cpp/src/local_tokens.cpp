#include <algorithm>
#include <cstdint>

#include "pyvllm_pp/error.h"
#include "pyvllm_pp/tables.h"

/// This rank's tokens of a step, gathered segment by segment where tensors are on the host.
namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "tables";

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

void check_length(std::string_view name, std::size_t length, std::int32_t expected) {
  if (length != index(expected)) {
    fail(kRoom, name, " has ", length, " entries, expected ", expected);
  }
}

void check_at_least(std::string_view name, std::size_t length, std::int32_t expected) {
  if (length < index(expected)) {
    fail(kRoom, name, " has ", length, " entries, expected at least ", expected);
  }
}

void check_sizes(const LocalTokens& local, const TableSizes& sizes) {
  check_length("local input_ids", local.input_ids.size(), sizes.padded_num_tokens);
  check_length("local positions", local.positions.size(), sizes.padded_num_tokens);
  check_length("local is_padding", local.is_padding.size(), sizes.padded_num_tokens);
  check_length("local seq_lens", local.seq_lens.size(), sizes.padded_num_reqs);
  check_at_least("local query_start_loc", local.query_start_loc.size(), sizes.padded_num_reqs + 1);
}

}  // namespace

void TableWriter::write_local(const Plan& plan, std::span<const std::int32_t> input_ids,
                              std::span<const std::int64_t> positions,
                              const LocalTokens& local) const {
  if (written_revision_ == 0 || plan.revision() != written_revision_) {
    fail(kRoom, "the tables are of another step, expected those of this plan (revision ",
         plan.revision(), ", written ", written_revision_, ")");
  }
  check_at_least("input_ids", input_ids.size(), plan.num_tokens());
  check_at_least("positions", positions.size(), plan.num_tokens());
  check_sizes(local, written_sizes_);
  std::int32_t end = 0;
  std::size_t row = 0;
  for (const auto& segment : plan.segments(rank_)) {
    const auto start = index(segment.token_start);
    const auto count = index(segment.num_tokens);
    if (count == 1) {  // a decode
      local.input_ids[index(end)] = input_ids[start];
      local.positions[index(end)] = positions[start];
    } else {
      std::ranges::copy(input_ids.subspan(start, count), local.input_ids.begin() + end);
      std::ranges::copy(positions.subspan(start, count), local.positions.begin() + end);
    }
    local.query_start_loc[row] = end;
    // Of the batch, not of the host's counts: those lag behind after a rejected draft.
    local.seq_lens[row] = static_cast<std::int32_t>(positions[start + count - 1] + 1);
    end += segment.num_tokens;
    ++row;
  }
  const auto used = index(end);
  std::ranges::fill(local.seq_lens.subspan(row), 0);
  std::ranges::fill(local.query_start_loc.subspan(row), end);
  std::ranges::fill(local.input_ids.subspan(used), 0);
  std::ranges::fill(local.positions.subspan(used), 0);
  std::ranges::fill(local.is_padding.first(used), std::uint8_t{0});
  std::ranges::fill(local.is_padding.subspan(used), std::uint8_t{1});
}

}  // namespace pyvllm_pp

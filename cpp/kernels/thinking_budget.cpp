#include "thinking_budget.h"

#include <algorithm>

#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kMarkers = "update_committed_marker_cache";
constexpr std::string_view kForce = "thinking_budget";
// Beats any logit.
constexpr float kForcedLogit = 1.0e9F;

/// A request's tokens: committed ones, then drafts of this step.
struct Text {
  const ThinkingState& state;
  const Ints& input_ids;
  std::int64_t slot;
  std::int64_t first_row;
  std::int64_t num_committed;
  std::int64_t size;

  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    return i < num_committed ? state.all_token_ids.at(slot, i)
                             : input_ids[first_row + i - num_committed + 1];
  }

  [[nodiscard]] bool has(const Ints& marker, std::int64_t at, std::int64_t length) const {
    for (std::int64_t i = 0; i < length; ++i) {
      if ((*this)[at + i] != marker[i]) {
        return false;
      }
    }
    return true;
  }

  /// The last place from `from` on where the whole marker is, or `otherwise`.
  [[nodiscard]] std::int64_t last(const Ints& marker, std::int64_t from,
                                  std::int64_t otherwise) const {
    for (auto at = size - marker.size(); at >= std::max<std::int64_t>(from, 0); --at) {
      if (has(marker, at, marker.size())) {
        return at;
      }
    }
    return otherwise;
  }
};

Text committed_text(const ThinkingState& state, std::int64_t slot) {
  static constexpr Ints kNoDrafts;
  const auto size = state.total_len[slot];
  return {.state = state,
          .input_ids = kNoDrafts,
          .slot = slot,
          .first_row = 0,
          .num_committed = size,
          .size = size};
}

std::int64_t num_slots(const ThinkingState& state) {
  return std::min({state.budget.size(), state.total_len.size(), state.last_start.size(),
                   state.last_end.size()});
}

bool has_budget(const ThinkingState& state, std::int64_t slot) {
  return slot >= 0 && state.budget[slot] >= 0;
}

void check_text(std::string_view kernel, const ThinkingState& state, std::int64_t slot) {
  check_range(kernel, "all_token_ids", slot * state.all_token_ids.stride, state.total_len[slot],
              state.all_token_ids.flat.size());
}

}  // namespace

void find_markers(const ThinkingState& state, const Ints& idx_mapping, const Ints& scan_positions,
                  std::int64_t num_reqs) {
  check_below(kMarkers, "req_ids", idx_mapping, num_reqs,
              std::min(num_slots(state), scan_positions.size()));
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    if (has_budget(state, idx_mapping[row])) {
      check_text(kMarkers, state, idx_mapping[row]);
    }
  }
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = idx_mapping[row];
    if (!has_budget(state, slot)) {
      continue;
    }
    const auto text = committed_text(state, slot);
    const bool is_shorter = scan_positions[slot] > text.size;
    const auto from = is_shorter ? 0 : scan_positions[slot];
    const auto known_start = is_shorter ? -1 : state.last_start[slot];
    const auto known_end = is_shorter ? -1 : state.last_end[slot];
    state.last_start.set(slot, text.last(state.start_marker, from, known_start));
    state.last_end.set(slot, text.last(state.end_marker, from, known_end));
    // The next look begins where a marker may lie across the end.
    const auto longest = std::max(state.start_marker.size(), state.end_marker.size());
    scan_positions.set(slot, std::max<std::int64_t>(text.size - (longest - 1), 0));
  }
}

namespace {

Text text_of_row(const ThinkingState& state, const ForcedEnd& in, std::int64_t row) {
  const auto slot = in.idx_mapping[row];
  const auto position = in.local_pos[row];
  return {.state = state,
          .input_ids = in.input_ids,
          .slot = slot,
          .first_row = row - position,
          .num_committed = state.total_len[slot],
          .size = state.total_len[slot] + position};
}

/// Whether a row's request is thinking and has used its budget up.
bool is_over(const Text& text) {
  const auto& state = text.state;
  // Whole markers among the committed tokens are known already.
  const auto from = [&](const Ints& marker) { return text.num_committed - marker.size() + 1; };
  const auto start =
      text.last(state.start_marker, from(state.start_marker), state.last_start[text.slot]);
  const auto end = text.last(state.end_marker, from(state.end_marker), state.last_end[text.slot]);
  const auto num_thinking = text.size - (start + state.start_marker.size());
  return start >= 0 && start > end && num_thinking >= state.budget[text.slot];
}

/// How much of the forced marker the text ends with already, not all of it.
std::int64_t forced_so_far(const Text& text, const Ints& marker) {
  for (auto length = std::min(marker.size() - 1, text.size); length > 0; --length) {
    if (text.has(marker, text.size - length, length)) {
      return length;
    }
  }
  return 0;
}

void check(const Logits& logits, const ThinkingState& state, const ForcedEnd& in,
           std::int64_t num_rows) {
  logits.check(kForce, num_rows);
  check_below(kForce, "expanded_idx_mapping", in.idx_mapping, num_rows, num_slots(state));
  check_range(kForce, "expanded_local_pos", 0, num_rows, in.local_pos.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (!has_budget(state, in.idx_mapping[row])) {
      continue;
    }
    check_text(kForce, state, in.idx_mapping[row]);
    const auto position = in.local_pos[row];
    check_range(kForce, "input_ids", row - position, position == 0 ? 0 : position + 1,
                std::max(in.input_ids.size(), row));
  }
  for (std::int64_t i = 0; i < in.forced_marker.size(); ++i) {
    check_range(kForce, "the vocabulary", in.forced_marker[i], 1, logits.vocab_size);
  }
}

}  // namespace

void force_end_of_thinking(const Logits& logits, const ThinkingState& state, const ForcedEnd& in,
                           std::int64_t num_rows) {
  check(logits, state, in, num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (!has_budget(state, in.idx_mapping[row])) {
      continue;
    }
    const auto text = text_of_row(state, in, row);
    if (is_over(text)) {
      const auto token = in.forced_marker[forced_so_far(text, in.forced_marker)];
      logits.visit(row, [&]<typename T>(T* data) { data[token] = from_float<T>(kForcedLogit); });
    }
  }
}

}  // namespace pyvllm_pp::kernels

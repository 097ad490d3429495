#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyvllm_pp/batch.h"

/// Room 4: sampled tokens on their way from the last stage to the requests of an earlier one.
///
///   step T:            begin_step -> post(T) -> mark_ready(T)
///   step T + pp_size:  begin_step -> consume() gives T's requests, each with its slot unchanged
///
///   an entry:  empty -> posted -> ready -> consumed (= empty again)
///
/// Requests are global rows and slots, never PCP-local ones. Not thread-safe.
namespace pyvllm_pp {

enum class EntryState : std::uint8_t { empty, posted, ready };

enum class Consumed : std::uint8_t {
  nothing,   ///< no feedback is due at this step
  none,      ///< feedback is due, but no request needs it any more
  filtered,  ///< some requests were left out: their mapping is -1
  all,       ///< every request of the step needs it
};

/// Marks requests whose sampled token can be needed in a later step: the last prefill chunk and
/// decodes, without those whose one sampled token reaches `max_seq_len`.
/// `max_seq_len` may be empty (decode-only batches). Rule: vLLM's `compute_need_sampled_mask`.
/// Returns the number of marked requests. Throws `std::invalid_argument` on unequal lengths.
std::int32_t need_sampled_mask(const BatchView& batch, std::span<const std::int32_t> max_seq_len,
                               std::span<bool> mask);

class FeedbackRing {
 public:
  /// `depth`: steps between post and consume (the number of pipeline stages). Throws
  /// `std::invalid_argument` for a depth or a slot count below 1.
  FeedbackRing(std::int32_t depth, std::int32_t max_num_reqs);

  /// Starts the next step and returns its number, from 0. Throws `FeedbackOrderError`, and stays
  /// at the present step, when the feedback due at this step was not consumed.
  std::int64_t begin_step();

  /// empty -> posted for the present step; takes the slots' generations as they are now.
  /// Returns false and stays empty when no request needs its token.
  /// Throws `FeedbackOrderError` when this step already has an entry, or before the first step;
  /// `std::invalid_argument` for unequal lengths, too many requests or a slot outside the limits.
  bool post(std::span<const std::int64_t> idx_mapping, std::span<const bool> need_sampled);

  /// posted -> ready: the tokens of `step` have arrived, or will have in stream order.
  /// Throws `FeedbackOrderError` for any other state.
  void mark_ready(std::int64_t step);

  /// ready -> consumed for the entry of the present step minus depth. Writes each request's slot,
  /// or -1 where it needs no token or its slot was freed since the post.
  /// Throws `FeedbackOrderError` when that entry is posted but not ready, when the present step
  /// has consumed already, or before the first step; `std::invalid_argument` when `idx_mapping` is
  /// not as long as `due_num_reqs()`.
  Consumed consume(std::span<std::int64_t> idx_mapping);

  /// Number of requests of the entry due at the present step; 0 when there is none.
  [[nodiscard]] std::int32_t due_num_reqs() const;

  /// Drops the entry of `step`, in whatever state (an abandoned step, a shutdown).
  void drop(std::int64_t step);

  /// Counts a freed request slot. Throws `std::invalid_argument` outside `[0, max_num_reqs)`.
  void free_slot(std::int64_t slot);

  /// Digest of a step's global requests: slots in batch order, their generations and scheduled
  /// tokens. Equal on all stages that see the same batch; travels with the feedback.
  /// 64-bit FNV-1a over words with a final mix (MurmurHash3's fmix64).
  /// Throws `std::invalid_argument` as `post` does.
  [[nodiscard]] std::int64_t digest(std::span<const std::int64_t> idx_mapping,
                                    std::span<const std::int32_t> num_scheduled_tokens) const;

  [[nodiscard]] EntryState state(std::int64_t step) const;
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::int32_t depth() const { return depth_; }
  [[nodiscard]] std::int32_t generation(std::int64_t slot) const;

 private:
  struct Entry {
    std::int64_t step = -1;
    EntryState state = EntryState::empty;
    std::int32_t num_reqs = 0;
    std::vector<std::int64_t> idx_mapping;  // [max_num_reqs]
    std::vector<std::int32_t> generation;   // [max_num_reqs] at the time of the post
    std::vector<std::uint8_t> need;         // [max_num_reqs]
  };

  [[nodiscard]] const Entry* find(std::int64_t step) const;
  [[nodiscard]] Entry* find(std::int64_t step);
  [[nodiscard]] Entry& at(std::int64_t step);
  void check_slot(std::int64_t slot) const;
  void check_started() const;

  std::int32_t depth_;
  std::int32_t max_num_reqs_;
  std::int64_t step_ = -1;
  bool consumed_ = false;                  // whether the present step has consumed
  std::vector<std::int32_t> generations_;  // [max_num_reqs]
  std::vector<Entry> entries_;             // [depth + 1], by step modulo depth + 1
};

}  // namespace pyvllm_pp

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

/// What travels in front of a step's tokens.
struct FeedbackHeader {
  std::int64_t step;
  std::int64_t digest;  ///< of the step's global requests, see `FeedbackRing::digest`
};

/// Throws `FeedbackOrderError`, which names both and the request slots, when the header received
/// (step, digest) is not the expected one; `std::invalid_argument` when it is not two long.
void check_header(std::span<const std::int64_t> received, const FeedbackHeader& expected,
                  std::span<const std::int64_t> idx_mapping);

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

  /// As `post`, of a batch: finds which requests need their token (`need_sampled_mask`), and keeps
  /// the batch's digest. Returns the number of those requests; at 0 nothing was posted.
  /// Cost: linear in the requests; no allocation. Throws as `post` and `need_sampled_mask`.
  std::int32_t post_batch(const BatchView& batch, std::span<const std::int32_t> max_seq_len);

  /// posted -> ready: the tokens of `step` have arrived, or will have in stream order.
  /// Throws `FeedbackOrderError` for any other state.
  void mark_ready(std::int64_t step);

  /// ready -> consumed for the entry of the present step minus depth. Writes each request's slot,
  /// or -1 where it needs no token or its slot was freed since the post.
  /// Throws `FeedbackOrderError` when that entry is posted but not ready, when the present step
  /// has consumed already, or before the first step; `std::invalid_argument` when `idx_mapping` is
  /// not as long as `due_num_reqs()`.
  Consumed consume(std::span<std::int64_t> idx_mapping);

  /// An earlier stage's begin of a step in one call: `begin_step`, and, where the feedback due then
  /// has arrived, `check_header`, `mark_ready`; then `consume`. `header` is empty where it is not
  /// on the host yet; `idx_mapping` may be longer than the entry, and need not be written where
  /// every slot is kept. Returns the number of requests whose slot was kept; 0 when nothing is due.
  /// Throws as those do; a wrong header leaves the entry posted.
  std::int32_t advance(bool has_arrived, std::span<const std::int64_t> header,
                       std::span<std::int64_t> idx_mapping);

  /// Number of requests of the entry due at the present step; 0 when there is none.
  [[nodiscard]] std::int32_t due_num_reqs() const;

  /// Drops the entry of `step`, in whatever state (an abandoned step, a shutdown).
  void drop(std::int64_t step);

  /// Counts a freed request slot. Throws `std::invalid_argument` outside `[0, max_num_reqs)`.
  void free_slot(std::int64_t slot);

  /// Digest of a step's global requests: slots in batch order, their generations and scheduled
  /// tokens. Equal on all stages that see the same batch; travels with the feedback.
  /// 64-bit FNV-1a over one word a request in four lanes, with a final mix (MurmurHash3's fmix64).
  /// Throws `std::invalid_argument` as `post` does.
  [[nodiscard]] std::int64_t digest(std::span<const std::int64_t> idx_mapping,
                                    std::span<const std::int32_t> num_scheduled_tokens) const;

  /// The digest that `post_batch` kept of a step. Throws `FeedbackOrderError` when the step has no
  /// entry in flight.
  [[nodiscard]] std::int64_t posted_digest(std::int64_t step) const;

  [[nodiscard]] EntryState state(std::int64_t step) const;
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::int32_t depth() const { return depth_; }
  [[nodiscard]] std::int32_t generation(std::int64_t slot) const;

 private:
  struct Entry {
    std::int64_t step = -1;
    EntryState state = EntryState::empty;
    std::int32_t num_reqs = 0;
    std::int64_t digest = 0;
    std::uint64_t num_frees = 0;                     // of all slots, at the time of the post
    std::size_t num_digested = 0;                    // requests that the digest is of; 0 for none
    bool needs_all = false;                          // known to: every request needs its token
    std::vector<std::int64_t> idx_mapping;           // [max_num_reqs]
    std::vector<std::int32_t> generation;            // [max_num_reqs] at the time of the post
    std::vector<std::uint8_t> need;                  // [max_num_reqs]
    std::vector<std::int32_t> num_scheduled_tokens;  // [max_num_reqs] that the digest is of
  };

  [[nodiscard]] const Entry* find(std::int64_t step) const;
  [[nodiscard]] Entry* find(std::int64_t step);
  [[nodiscard]] Entry& at(std::int64_t step);
  Entry& empty_entry(std::span<const std::int64_t> idx_mapping);
  void fill(Entry& entry, std::span<const std::int64_t> idx_mapping) const;
  void set_posted(Entry& entry, std::size_t num_reqs) const;
  [[nodiscard]] bool is_of(const Entry& entry, const BatchView& batch) const;
  [[nodiscard]] std::size_t write_kept(const Entry& entry,
                                       std::span<std::int64_t> idx_mapping) const;
  void finish(Entry& entry);
  void check_slot(std::int64_t slot) const;
  void check_slots(std::span<const std::int64_t> idx_mapping) const;
  void check_started() const;

  std::int32_t depth_;
  std::int32_t max_num_reqs_;
  std::int64_t step_ = -1;
  std::uint64_t num_frees_ = 0;            // of all slots
  bool consumed_ = false;                  // whether the present step has consumed
  std::vector<std::int32_t> generations_;  // [max_num_reqs]
  std::vector<Entry> entries_;             // [depth + 1], by step modulo depth + 1
};

}  // namespace pyvllm_pp

#include "pyvllm_pp/feedback.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "feedback";
constexpr std::int64_t kExcluded = -1;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

std::string_view name(EntryState state) {
  switch (state) {
    case EntryState::empty:
      return "empty";
    case EntryState::posted:
      return "posted";
    case EntryState::ready:
      return "ready";
  }
  return "?";
}

template <typename... Parts>
[[noreturn]] void fail_order(const Parts&... parts) {
  throw FeedbackOrderError(concat('[', kRoom, "] ", parts...));
}

/// The request slots of an entry, shortened: an order fault names the requests it hits.
std::string slots_text(std::span<const std::int64_t> slots) {
  constexpr std::size_t kMost = 8;
  std::string text = "slots";
  for (std::size_t i = 0; i < std::min(slots.size(), kMost); ++i) {
    text += concat(i == 0 ? " " : ", ", slots[i]);
  }
  return slots.size() > kMost ? text + ", ..." : text;
}

void check_length(std::string_view what, std::size_t length, std::size_t expected) {
  if (length != expected) {
    fail(kRoom, what, " has ", length, " entries, expected ", expected);
  }
}

}  // namespace

std::int32_t need_sampled_mask(const BatchView& batch, std::span<const std::int32_t> max_seq_len,
                               std::span<bool> mask) {
  const auto& scheduled = batch.scheduled;
  const auto num_reqs = mask.size();
  check_length("num_scheduled_tokens", scheduled.num_scheduled_tokens.size(), num_reqs);
  check_length("is_prefilling", scheduled.is_prefilling.size(), num_reqs);
  check_length("num_computed_tokens", batch.num_computed_tokens.size(), num_reqs);
  check_length("prefill_len", batch.prefill_len.size(), num_reqs);
  if (!max_seq_len.empty()) {
    check_length("max_seq_len", max_seq_len.size(), num_reqs);
  }
  std::int32_t count = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    const std::int64_t prefill_len = batch.prefill_len[i];
    const bool samples =
        std::int64_t{batch.num_computed_tokens[i]} + scheduled.num_scheduled_tokens[i] >=
        prefill_len;
    const bool at_its_end =
        !max_seq_len.empty() && scheduled.is_prefilling[i] && prefill_len + 1 >= max_seq_len[i];
    mask[i] = samples && !at_its_end;
    count += mask[i] ? 1 : 0;
  }
  return count;
}

FeedbackRing::FeedbackRing(std::int32_t depth, std::int32_t max_num_reqs)
    : depth_(depth), max_num_reqs_(max_num_reqs) {
  if (depth < 1) {
    fail(kRoom, "depth is ", depth, ", expected 1 or more");
  }
  if (max_num_reqs < 1) {
    fail(kRoom, "max_num_reqs is ", max_num_reqs, ", expected 1 or more");
  }
  generations_.resize(index(max_num_reqs));
  entries_.resize(index(depth) + 1);
  for (auto& entry : entries_) {
    entry.idx_mapping.resize(index(max_num_reqs));
    entry.generation.resize(index(max_num_reqs));
    entry.need.resize(index(max_num_reqs));
  }
}

const FeedbackRing::Entry* FeedbackRing::find(std::int64_t step) const {
  if (step < 0) {
    return nullptr;
  }
  const auto& entry = entries_[index(step) % entries_.size()];
  return entry.step == step ? &entry : nullptr;
}

FeedbackRing::Entry* FeedbackRing::find(std::int64_t step) {
  return const_cast<Entry*>(std::as_const(*this).find(step));
}

FeedbackRing::Entry& FeedbackRing::at(std::int64_t step) {
  return entries_[index(step) % entries_.size()];
}

EntryState FeedbackRing::state(std::int64_t step) const {
  const auto* entry = find(step);
  return entry == nullptr ? EntryState::empty : entry->state;
}

void FeedbackRing::check_started() const {
  if (step_ < 0) {
    fail_order("no step has begun, expected begin_step first");
  }
}

std::int64_t FeedbackRing::begin_step() {
  const auto due = step_ - depth_;
  if (const auto* entry = find(due); entry != nullptr && entry->state != EntryState::empty) {
    fail_order("step ", step_ + 1, " begins, but the feedback of step ", due, " is still ",
               name(entry->state), " (",
               slots_text(std::span(entry->idx_mapping).first(index(entry->num_reqs))),
               "): it was due at step ", step_);
  }
  ++step_;
  consumed_ = false;
  auto& entry = at(step_);
  entry.step = step_;
  entry.state = EntryState::empty;
  entry.num_reqs = 0;
  return step_;
}

bool FeedbackRing::post(std::span<const std::int64_t> idx_mapping,
                        std::span<const bool> need_sampled) {
  check_started();
  check_length("need_sampled", need_sampled.size(), idx_mapping.size());
  if (idx_mapping.size() > index(max_num_reqs_)) {
    fail(kRoom, idx_mapping.size(), " requests posted, the ring holds ", max_num_reqs_);
  }
  std::ranges::for_each(idx_mapping, [this](std::int64_t slot) { check_slot(slot); });
  auto& entry = at(step_);
  if (entry.state != EntryState::empty) {
    fail_order("step ", step_, " is posted again (", slots_text(idx_mapping),
               "), its feedback is already ", name(entry.state));
  }
  if (std::ranges::find(need_sampled, true) == need_sampled.end()) {
    return false;
  }
  entry.state = EntryState::posted;
  entry.num_reqs = static_cast<std::int32_t>(idx_mapping.size());
  for (std::size_t i = 0; i < idx_mapping.size(); ++i) {
    entry.idx_mapping[i] = idx_mapping[i];
    entry.generation[i] = generations_[index(idx_mapping[i])];
    entry.need[i] = need_sampled[i] ? 1 : 0;
  }
  return true;
}

void FeedbackRing::mark_ready(std::int64_t step) {
  auto* entry = find(step);
  if (entry == nullptr || entry->state != EntryState::posted) {
    fail_order("feedback of step ", step, " arrived at step ", step_, ", but its entry is ",
               name(state(step)), ", expected posted");
  }
  entry->state = EntryState::ready;
}

std::int32_t FeedbackRing::due_num_reqs() const {
  const auto* entry = find(step_ - depth_);
  return entry == nullptr || entry->state == EntryState::empty ? 0 : entry->num_reqs;
}

Consumed FeedbackRing::consume(std::span<std::int64_t> idx_mapping) {
  check_started();
  if (consumed_) {
    fail_order("feedback of step ", step_ - depth_, " is consumed twice at step ", step_);
  }
  check_length("idx_mapping", idx_mapping.size(), index(due_num_reqs()));
  auto* entry = find(step_ - depth_);
  if (entry == nullptr || entry->state == EntryState::empty) {
    consumed_ = true;
    return Consumed::nothing;
  }
  if (entry->state != EntryState::ready) {
    fail_order("feedback of step ", entry->step, " (",
               slots_text(std::span(entry->idx_mapping).first(index(entry->num_reqs))),
               ") is due at step ", step_, ", but it is ", name(entry->state), ", expected ready");
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < idx_mapping.size(); ++i) {
    const auto slot = entry->idx_mapping[i];
    const bool keep = entry->need[i] != 0 && entry->generation[i] == generations_[index(slot)];
    idx_mapping[i] = keep ? slot : kExcluded;
    kept += keep ? 1U : 0U;
  }
  entry->state = EntryState::empty;
  entry->num_reqs = 0;
  consumed_ = true;
  if (kept == 0) {
    return Consumed::none;
  }
  return kept == idx_mapping.size() ? Consumed::all : Consumed::filtered;
}

std::int64_t FeedbackRing::digest(std::span<const std::int64_t> idx_mapping,
                                  std::span<const std::int32_t> num_scheduled_tokens) const {
  check_length("num_scheduled_tokens", num_scheduled_tokens.size(), idx_mapping.size());
  std::ranges::for_each(idx_mapping, [this](std::int64_t slot) { check_slot(slot); });
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325;
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = kOffset;
  const auto add = [&hash](std::uint64_t word) { hash = (hash ^ word) * kPrime; };
  for (std::size_t i = 0; i < idx_mapping.size(); ++i) {
    add(static_cast<std::uint64_t>(idx_mapping[i]));
    add(static_cast<std::uint32_t>(generations_[index(idx_mapping[i])]));
    add(static_cast<std::uint32_t>(num_scheduled_tokens[i]));
  }
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53;
  return static_cast<std::int64_t>(hash ^ (hash >> 33U));
}

void FeedbackRing::drop(std::int64_t step) {
  if (auto* entry = find(step); entry != nullptr) {
    entry->state = EntryState::empty;
    entry->num_reqs = 0;
  }
}

void FeedbackRing::free_slot(std::int64_t slot) {
  check_slot(slot);
  // Wraps around rather than overflows: only equality counts.
  auto& generation = generations_[index(slot)];
  generation = static_cast<std::int32_t>(static_cast<std::uint32_t>(generation) + 1U);
}

std::int32_t FeedbackRing::generation(std::int64_t slot) const {
  check_slot(slot);
  return generations_[index(slot)];
}

void FeedbackRing::check_slot(std::int64_t slot) const {
  if (slot < 0 || slot >= max_num_reqs_) {
    fail(kRoom, "request slot ", slot, " is outside [0, ", max_num_reqs_, ")");
  }
}

}  // namespace pyvllm_pp

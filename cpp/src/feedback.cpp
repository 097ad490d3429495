#include "pyvllm_pp/feedback.h"

#include <algorithm>
#include <string>
#include <utility>

#include "feedback_requests.h"
#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = kFeedbackRoom;
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

}  // namespace

std::int32_t need_sampled_mask(const BatchView& batch, std::span<const std::int32_t> max_seq_len,
                               std::span<bool> mask) {
  return write_need_sampled(batch, max_seq_len, mask);
}

void check_header(std::span<const std::int64_t> received, const FeedbackHeader& expected,
                  std::span<const std::int64_t> idx_mapping) {
  check_length("header", received.size(), 2);
  const auto step = received[0];
  const auto digest = received[1];
  if (step != expected.step || digest != expected.digest) {
    fail_order("received the feedback of step ", step, " with the requests' digest ", std::hex,
               std::showbase, digest, std::dec, ", expected step ", expected.step, " with ",
               std::hex, expected.digest, " (", slots_text(idx_mapping), ")");
  }
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
    entry.num_scheduled_tokens.resize(index(max_num_reqs));
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
  auto& entry = empty_entry(idx_mapping);
  if (std::ranges::find(need_sampled, true) == need_sampled.end()) {
    return false;
  }
  std::ranges::copy(need_sampled, entry.need.begin());
  fill(entry, idx_mapping);
  return true;
}

std::int32_t FeedbackRing::post_batch(const BatchView& batch,
                                      std::span<const std::int32_t> max_seq_len) {
  check_started();
  auto& entry = empty_entry(batch.idx_mapping);
  const auto num_reqs = batch.idx_mapping.size();
  const auto num_needed =
      write_need_sampled(batch, max_seq_len, std::span(entry.need).first(num_reqs));
  if (num_needed == 0) {
    return 0;
  }
  const auto& last = at(step_ + 1);  // of the same requests, in a pipeline of equal batches
  if (is_of(last, batch)) {
    const auto count = static_cast<std::ptrdiff_t>(num_reqs);
    std::copy_n(last.idx_mapping.begin(), count, entry.idx_mapping.begin());
    std::copy_n(last.generation.begin(), count, entry.generation.begin());
    entry.digest = last.digest;
    set_posted(entry, num_reqs);
  } else {
    fill(entry, batch.idx_mapping);
    entry.digest = digest_of(batch.idx_mapping, batch.scheduled.num_scheduled_tokens,
                             [&entry](std::size_t i) { return entry.generation[i]; });
  }
  std::ranges::copy(batch.scheduled.num_scheduled_tokens, entry.num_scheduled_tokens.begin());
  entry.num_digested = num_reqs;
  entry.needs_all = std::cmp_equal(num_needed, num_reqs);
  return num_needed;
}

/// Whether the digest that an entry still has, consumed or not, is that of a batch.
bool FeedbackRing::is_of(const Entry& entry, const BatchView& batch) const {
  const auto num_reqs = batch.idx_mapping.size();
  return entry.num_digested == num_reqs && entry.num_frees == num_frees_ &&
         std::equal(batch.idx_mapping.begin(), batch.idx_mapping.end(),
                    entry.idx_mapping.begin()) &&
         std::equal(batch.scheduled.num_scheduled_tokens.begin(),
                    batch.scheduled.num_scheduled_tokens.end(), entry.num_scheduled_tokens.begin());
}

/// The present step's entry, once it is clear that `idx_mapping` can be posted.
FeedbackRing::Entry& FeedbackRing::empty_entry(std::span<const std::int64_t> idx_mapping) {
  if (idx_mapping.size() > index(max_num_reqs_)) {
    fail(kRoom, idx_mapping.size(), " requests posted, the ring holds ", max_num_reqs_);
  }
  check_slots(idx_mapping);
  auto& entry = at(step_);
  if (entry.state != EntryState::empty) {
    fail_order("step ", step_, " is posted again (", slots_text(idx_mapping),
               "), its feedback is already ", name(entry.state));
  }
  return entry;
}

void FeedbackRing::fill(Entry& entry, std::span<const std::int64_t> idx_mapping) const {
  std::ranges::copy(idx_mapping, entry.idx_mapping.begin());
  std::ranges::transform(idx_mapping, entry.generation.begin(),
                         [this](std::int64_t slot) { return generations_[index(slot)]; });
  entry.num_digested = 0;
  set_posted(entry, idx_mapping.size());
}

void FeedbackRing::set_posted(Entry& entry, std::size_t num_reqs) const {
  entry.num_reqs = static_cast<std::int32_t>(num_reqs);
  entry.num_frees = num_frees_;
  entry.needs_all = false;
  entry.state = EntryState::posted;
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
  const auto num_kept = write_kept(*entry, idx_mapping);
  finish(*entry);
  if (num_kept == 0) {
    return Consumed::none;
  }
  return num_kept == idx_mapping.size() ? Consumed::all : Consumed::filtered;
}

std::size_t FeedbackRing::write_kept(const Entry& entry,
                                     std::span<std::int64_t> idx_mapping) const {
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < idx_mapping.size(); ++i) {
    const auto slot = entry.idx_mapping[i];
    const bool keep = entry.need[i] != 0 && entry.generation[i] == generations_[index(slot)];
    idx_mapping[i] = keep ? slot : kExcluded;
    num_kept += keep ? 1U : 0U;
  }
  return num_kept;
}

void FeedbackRing::finish(Entry& entry) {
  entry.state = EntryState::empty;
  entry.num_reqs = 0;
  consumed_ = true;
}

std::int32_t FeedbackRing::advance(bool has_arrived, std::span<const std::int64_t> header,
                                   std::span<std::int64_t> idx_mapping) {
  if (const auto* next = find(step_ + 1 - depth_);
      next != nullptr && std::cmp_less(idx_mapping.size(), next->num_reqs)) {
    fail(kRoom, "idx_mapping has ", idx_mapping.size(), " entries, expected at least ",
         next->num_reqs);
  }
  const auto due = begin_step() - depth_;
  const auto num_reqs = index(due_num_reqs());
  if (has_arrived) {
    if (const auto* entry = find(due); entry != nullptr && !header.empty()) {
      check_header(header, {.step = due, .digest = entry->digest},
                   std::span(entry->idx_mapping).first(num_reqs));
    }
    mark_ready(due);
  }
  if (auto* entry = find(due); has_arrived && entry->needs_all && entry->num_frees == num_frees_) {
    finish(*entry);
    return static_cast<std::int32_t>(num_reqs);
  }
  const auto due_mapping = idx_mapping.first(num_reqs);
  if (const auto consumed = consume(due_mapping);
      consumed == Consumed::nothing || consumed == Consumed::none) {
    return 0;
  }
  return static_cast<std::int32_t>(
      std::ranges::count_if(due_mapping, [](std::int64_t slot) { return slot != kExcluded; }));
}

std::int64_t FeedbackRing::digest(std::span<const std::int64_t> idx_mapping,
                                  std::span<const std::int32_t> num_scheduled_tokens) const {
  check_length("num_scheduled_tokens", num_scheduled_tokens.size(), idx_mapping.size());
  check_slots(idx_mapping);
  return digest_of(idx_mapping, num_scheduled_tokens, [this, idx_mapping](std::size_t i) {
    return generations_[index(idx_mapping[i])];
  });
}

std::int64_t FeedbackRing::posted_digest(std::int64_t step) const {
  const auto* entry = find(step);
  if (entry == nullptr || entry->state == EntryState::empty || entry->num_digested == 0) {
    fail_order("step ", step, " has no feedback of a batch in flight at step ", step_);
  }
  return entry->digest;
}

void FeedbackRing::drop(std::int64_t step) {
  if (auto* entry = find(step); entry != nullptr) {
    entry->state = EntryState::empty;
    entry->num_reqs = 0;
  }
}

void FeedbackRing::free_slot(std::int64_t slot) {
  check_slot(slot);
  ++num_frees_;
  // Wraps around rather than overflows: only equality counts.
  auto& generation = generations_[index(slot)];
  generation = static_cast<std::int32_t>(static_cast<std::uint32_t>(generation) + 1U);
}

std::int32_t FeedbackRing::generation(std::int64_t slot) const {
  check_slot(slot);
  return generations_[index(slot)];
}

void FeedbackRing::check_slots(std::span<const std::int64_t> idx_mapping) const {
  bool all_inside = true;
  for (const auto slot : idx_mapping) {
    all_inside &= static_cast<std::uint64_t>(slot) < index(max_num_reqs_);
  }
  if (!all_inside) {
    std::ranges::for_each(idx_mapping, [this](std::int64_t slot) { check_slot(slot); });
  }
}

void FeedbackRing::check_slot(std::int64_t slot) const {
  if (slot < 0 || slot >= max_num_reqs_) {
    fail(kRoom, "request slot ", slot, " is outside [0, ", max_num_reqs_, ")");
  }
}

}  // namespace pyvllm_pp

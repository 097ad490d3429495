#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "pyvllm_pp/error.h"
#include "pyvllm_pp/feedback.h"

/// A plain model of the feedback ring, and one call of which both must make the same.
///
/// Independent of the core: steps in flight in a map, faults as values, no modulo, no reuse.
namespace pyvllm_pp::testing {

/// Each transition that is not allowed.
enum class Fault : std::uint8_t {
  none,
  begin_while_posted,
  begin_while_ready,
  post_before_first_step,
  post_while_posted,
  post_while_ready,
  post_slot_outside,
  post_unequal_lengths,
  post_too_many,
  ready_before_post,
  ready_twice,
  ready_of_future_step,
  ready_of_past_step,
  consume_before_first_step,
  consume_while_posted,
  consume_twice,
  free_slot_outside,
};
constexpr std::size_t kNumFaults = 17;

/// Whether the fault is the caller's bad input, not a broken order.
inline bool is_bad_input(Fault fault) {
  return fault == Fault::post_slot_outside || fault == Fault::post_unequal_lengths ||
         fault == Fault::post_too_many || fault == Fault::free_slot_outside;
}

enum class Verb : std::uint8_t { begin_step, post, mark_ready, consume, drop, free_slot };

struct Call {
  Verb verb;
  std::int64_t number = 0;            // step or slot
  std::vector<std::int64_t> slots{};  // of a post
  std::vector<bool> need{};           // of a post
};

/// What a call gave: a fault, or its result.
struct Outcome {
  Fault fault = Fault::none;
  std::int64_t value = 0;  // of begin_step, post, consume
  std::vector<std::int64_t> slots{};
  std::int64_t named_step = -1;  // the step that the fault's text must name
};

class FeedbackModel {
 public:
  FeedbackModel(std::int64_t depth, std::int64_t max_num_reqs)
      : depth_(depth), frees_(static_cast<std::size_t>(max_num_reqs)) {}

  Outcome apply(const Call& call) {
    switch (call.verb) {
      case Verb::begin_step:
        return begin_step();
      case Verb::post:
        return post(call);
      case Verb::mark_ready:
        return mark_ready(call.number);
      case Verb::consume:
        return consume();
      case Verb::drop:
        in_flight_.erase(call.number);
        return {};
      case Verb::free_slot:
        return free_slot(call.number);
    }
    return {};
  }

  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::int64_t frees(std::int64_t slot) const {
    return frees_.at(static_cast<std::size_t>(slot));
  }
  [[nodiscard]] EntryState state(std::int64_t step) const {
    const auto entry = in_flight_.find(step);
    if (entry == in_flight_.end()) {
      return EntryState::empty;
    }
    return entry->second.is_ready ? EntryState::ready : EntryState::posted;
  }
  [[nodiscard]] std::int64_t due_num_reqs() const {
    const auto entry = in_flight_.find(step_ - depth_);
    return entry == in_flight_.end() ? 0 : static_cast<std::int64_t>(entry->second.reqs.size());
  }
  friend auto operator<=>(const FeedbackModel&, const FeedbackModel&) = default;

 private:
  struct Req {
    std::int64_t slot;
    std::int64_t frees;
    bool need;
    friend auto operator<=>(const Req&, const Req&) = default;
  };
  struct Entry {
    bool is_ready = false;
    std::vector<Req> reqs;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  Outcome begin_step() {
    const auto due = step_ - depth_;
    if (in_flight_.contains(due)) {
      const bool posted = state(due) == EntryState::posted;
      return {.fault = posted ? Fault::begin_while_posted : Fault::begin_while_ready,
              .named_step = due};
    }
    has_consumed_ = false;
    return {.value = ++step_};
  }

  Outcome post(const Call& call) {
    if (step_ < 0) {
      return {.fault = Fault::post_before_first_step};
    }
    if (call.slots.size() != call.need.size()) {
      return {.fault = Fault::post_unequal_lengths};
    }
    if (call.slots.size() > frees_.size()) {
      return {.fault = Fault::post_too_many};
    }
    if (std::ranges::any_of(call.slots, [this](auto slot) { return is_outside(slot); })) {
      return {.fault = Fault::post_slot_outside};
    }
    if (in_flight_.contains(step_)) {
      const bool posted = state(step_) == EntryState::posted;
      return {.fault = posted ? Fault::post_while_posted : Fault::post_while_ready,
              .named_step = step_};
    }
    if (std::ranges::count(call.need, true) == 0) {
      return {.value = 0};
    }
    auto& entry = in_flight_[step_];
    for (std::size_t i = 0; i < call.slots.size(); ++i) {
      entry.reqs.push_back({call.slots[i], frees(call.slots[i]), call.need[i]});
    }
    return {.value = 1};
  }

  Outcome mark_ready(std::int64_t step) {
    const auto now = state(step);
    if (now == EntryState::posted) {
      in_flight_[step].is_ready = true;
      return {};
    }
    if (now == EntryState::ready) {
      return {.fault = Fault::ready_twice, .named_step = step};
    }
    const auto fault = step > step_   ? Fault::ready_of_future_step
                       : step < step_ ? Fault::ready_of_past_step
                                      : Fault::ready_before_post;
    return {.fault = fault, .named_step = step};
  }

  Outcome consume() {
    if (step_ < 0) {
      return {.fault = Fault::consume_before_first_step};
    }
    const auto due = step_ - depth_;
    if (has_consumed_) {
      return {.fault = Fault::consume_twice, .named_step = due};
    }
    if (state(due) == EntryState::posted) {
      return {.fault = Fault::consume_while_posted, .named_step = due};
    }
    has_consumed_ = true;
    if (!in_flight_.contains(due)) {
      return {.value = static_cast<std::int64_t>(Consumed::nothing)};
    }
    Outcome outcome;
    std::size_t kept = 0;
    for (const auto& req : in_flight_[due].reqs) {
      const bool keep = req.need && req.frees == frees(req.slot);
      outcome.slots.push_back(keep ? req.slot : -1);
      kept += keep ? 1U : 0U;
    }
    const auto consumed = kept == 0                      ? Consumed::none
                          : kept == outcome.slots.size() ? Consumed::all
                                                         : Consumed::filtered;
    outcome.value = static_cast<std::int64_t>(consumed);
    in_flight_.erase(due);
    return outcome;
  }

  Outcome free_slot(std::int64_t slot) {
    if (is_outside(slot)) {
      return {.fault = Fault::free_slot_outside};
    }
    ++frees_[static_cast<std::size_t>(slot)];
    return {};
  }

  [[nodiscard]] bool is_outside(std::int64_t slot) const {
    return slot < 0 || slot >= static_cast<std::int64_t>(frees_.size());
  }

  std::int64_t depth_;
  std::int64_t step_ = -1;
  bool has_consumed_ = false;
  std::vector<std::int64_t> frees_;  // [max_num_reqs]
  std::map<std::int64_t, Entry> in_flight_;
};

}  // namespace pyvllm_pp::testing

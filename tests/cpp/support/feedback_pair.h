#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <valarray>

#include "support/feedback_model.h"

/// The core's ring beside the model: every call goes to both, every difference is told in words.
namespace pyvllm_pp::testing {

struct FeedbackPair {
  FeedbackPair(std::int32_t depth, std::int32_t max_num_reqs)
      : ring(depth, max_num_reqs), model(depth, max_num_reqs), num_slots(max_num_reqs) {}

  FeedbackRing ring;
  FeedbackModel model;
  std::int32_t num_slots;
};

inline std::string text(const Call& call) {
  constexpr const char* kNames[] = {"begin_step", "post", "mark_ready",
                                    "consume",    "drop", "free_slot"};
  auto words = concat(kNames[static_cast<std::size_t>(call.verb)], ' ', call.number);
  for (std::size_t i = 0; i < call.slots.size(); ++i) {
    words += concat(i == 0 ? " slots " : ", ", call.slots[i]);
  }
  for (std::size_t i = 0; i < call.need.size(); ++i) {
    words += concat(i == 0 ? " need " : ", ", call.need[i] ? 1 : 0);
  }
  return words;
}

inline Outcome call_ring(FeedbackRing& ring, const Call& call) {
  switch (call.verb) {
    case Verb::begin_step:
      return {.value = ring.begin_step()};
    case Verb::post: {
      std::valarray<bool> need(call.need.size());
      std::ranges::copy(call.need, std::begin(need));
      return {.value = ring.post(call.slots, {std::begin(need), need.size()}) ? 1 : 0};
    }
    case Verb::mark_ready:
      ring.mark_ready(call.number);
      return {};
    case Verb::consume: {
      Outcome outcome;
      outcome.slots.resize(static_cast<std::size_t>(ring.due_num_reqs()));
      outcome.value = static_cast<std::int64_t>(ring.consume(outcome.slots));
      return outcome;
    }
    case Verb::drop:
      ring.drop(call.number);
      return {};
    case Verb::free_slot:
      ring.free_slot(call.number);
      return {};
  }
  return {};
}

/// What differs between the two in what can be seen of them; "" when nothing does.
inline std::string difference(const FeedbackPair& pair) {
  const auto& [ring, model, num_slots] = pair;
  if (ring.step() != model.step()) {
    return concat("step is ", ring.step(), ", expected ", model.step());
  }
  if (ring.due_num_reqs() != model.due_num_reqs()) {
    return concat("due_num_reqs is ", ring.due_num_reqs(), ", expected ", model.due_num_reqs());
  }
  for (auto step = model.step() - ring.depth() - 2; step <= model.step() + 1; ++step) {
    if (ring.state(step) != model.state(step)) {
      return concat("state of step ", step, " is ", static_cast<int>(ring.state(step)),
                    ", expected ", static_cast<int>(model.state(step)));
    }
  }
  for (std::int32_t slot = 0; slot < num_slots; ++slot) {
    if (ring.generation(slot) != model.frees(slot)) {
      return concat("generation of slot ", slot, " is ", ring.generation(slot), ", expected ",
                    model.frees(slot));
    }
  }
  return "";
}

/// Makes the call on both. The outcome, and what was wrong with the core's; "" when nothing was.
inline std::pair<Outcome, std::string> apply(FeedbackPair& pair, const Call& call) {
  const auto expected = pair.model.apply(call);
  const bool bad_input = is_bad_input(expected.fault);
  const auto check_error = [&](bool right_kind, const std::string& what) -> std::string {
    if (!right_kind) {
      return concat("not expected to fail so: ", what);
    }
    const auto named = concat("step ", expected.named_step);
    const bool names_step = expected.named_step < 0 || what.find(named) != std::string::npos;
    return names_step ? difference(pair) : concat("the text does not name ", named, ": ", what);
  };
  std::string wrong;
  try {
    const auto outcome = call_ring(pair.ring, call);
    if (expected.fault != Fault::none) {
      wrong = concat("fault ", static_cast<int>(expected.fault), " was not reported");
    } else if (outcome.value != expected.value || outcome.slots != expected.slots) {
      wrong = concat("gave ", outcome.value, ", expected ", expected.value);
    } else {
      wrong = difference(pair);
    }
  } catch (const FeedbackOrderError& error) {
    wrong = check_error(expected.fault != Fault::none && !bad_input, error.what());
  } catch (const std::invalid_argument& error) {
    wrong = check_error(bad_input, error.what());
  }
  return {expected, wrong.empty() ? wrong : concat("after ", text(call), ": ", wrong)};
}

}  // namespace pyvllm_pp::testing

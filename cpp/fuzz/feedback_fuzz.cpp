#include "input.h"
#include "support/feedback_pair.h"

/// Any sequence of calls on the feedback ring gives what the plain model gives.
namespace pyvllm_pp::fuzz {
namespace {

using testing::apply;
using testing::Call;
using testing::FeedbackPair;
using testing::Verb;

Call call_from(Input& input, const FeedbackPair& pair) {
  const auto verb = static_cast<Verb>(input.byte() % 6U);
  if (verb == Verb::post) {
    Call call{.verb = verb};
    // One slot and one request more than the ring holds: bad input is reached too.
    for (auto count = input.byte() % (pair.num_slots + 2); count > 0; --count) {
      call.slots.push_back(input.byte() % (pair.num_slots + 1));
      call.need.push_back(input.byte() % 2U == 1U);
    }
    if (input.byte() == 0xff) {
      call.need.push_back(true);
    }
    return call;
  }
  const auto number = verb == Verb::free_slot
                          ? std::int64_t{input.byte() % (pair.num_slots + 1)}
                          : pair.model.step() + 1 - input.byte() % (pair.ring.depth() + 3);
  return {.verb = verb, .number = number};
}

void run(Input input) {
  FeedbackPair pair(1 + input.byte() % 5, 1 + input.byte() % 6);
  while (!input.is_empty()) {
    const auto wrong = apply(pair, call_from(input, pair)).second;
    require(wrong.empty(), wrong);
  }
}

}  // namespace
}  // namespace pyvllm_pp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pyvllm_pp::fuzz::run({data, size});
  return 0;
}

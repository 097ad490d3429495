#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

/// Errors of the core. Every message starts with the room that found the fault, `[plan] ...`, and
/// names the value and what was expected. All are raised before anything is written.
namespace pyvllm_pp {

/// The feedback of a step was posted, marked ready or consumed out of order. Names step and slot.
class FeedbackOrderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Text of all parts, one after the other.
template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// Throws `std::invalid_argument` (Python: `ValueError`) with `[room] ` in front.
template <typename... Parts>
[[noreturn]] void fail(std::string_view room, const Parts&... parts) {
  throw std::invalid_argument(concat('[', room, "] ", parts...));
}

}  // namespace pyvllm_pp

#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace pyvllm_pp::testing {

/// The text of the `Error` that `call` throws; "" when it throws nothing. Others pass through.
template <typename Error, typename Call>
std::string text_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <typename Call>
std::string invalid(Call&& call) {
  return text_of<std::invalid_argument>(std::forward<Call>(call));
}

}  // namespace pyvllm_pp::testing

#pragma once

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace pyvllm_pp::testing {

/// One worked example; prints as its name.
struct Example {
  nlohmann::json json;

  [[nodiscard]] std::string name() const { return json.at("name"); }
  friend std::ostream& operator<<(std::ostream& out, const Example& example) {
    return out << example.name();
  }
};

/// The examples of `section`, read from the file that the Python tests read too.
inline std::vector<Example> worked_examples(const std::string& section) {
  const std::string path = std::string(PYVLLM_PP_TEST_DATA) + "/worked_examples.json";
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("cannot open " + path);
  }
  std::vector<Example> examples;
  const auto all = nlohmann::json::parse(file);
  for (const auto& json : all.at(section)) {
    examples.push_back({json});
  }
  return examples;
}

template <typename T>
std::vector<T> array(const nlohmann::json& json) {
  return json.get<std::vector<T>>();
}

}  // namespace pyvllm_pp::testing

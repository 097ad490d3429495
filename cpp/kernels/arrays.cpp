#include "arrays.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

namespace pyvllm_pp::kernels {

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return "bool";
    case ElementType::uint8:
      return "uint8";
    case ElementType::int32:
      return "int32";
    case ElementType::int64:
      return "int64";
    case ElementType::uint64:
      return "uint64";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::float16:
      return "float16";
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
  }
  return "an unknown type";
}

std::int64_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8:
      return 1;
    case ElementType::bfloat16:
    case ElementType::float16:
      return 2;
    case ElementType::int32:
    case ElementType::float32:
      return 4;
    case ElementType::int64:
    case ElementType::uint64:
    case ElementType::float64:
      return 8;
  }
  return 0;
}

void copy(const Ints& source, std::int64_t from, const Ints& target, std::int64_t start,
          std::int64_t count) {
  source.visit([&](const auto* in) {
    target.visit([&](auto* out) {
      using Out = std::remove_pointer_t<decltype(out)>;
      std::transform(in + from, in + from + count, out + start,
                     [](auto value) { return static_cast<Out>(value); });
    });
  });
}

void fill_ascending(const Ints& target, std::int64_t start, std::int64_t count,
                    std::int64_t first) {
  target.visit([&](auto* out) {
    using Out = std::remove_pointer_t<decltype(out)>;
    std::iota(out + start, out + start + count, static_cast<Out>(first));
  });
}

void fill(const Ints& target, std::int64_t start, std::int64_t count, std::int64_t value) {
  target.visit([&](auto* out) {
    using Out = std::remove_pointer_t<decltype(out)>;
    std::fill_n(out + start, count, static_cast<Out>(value));
  });
}

void check_below(std::string_view kernel, std::string_view name, const Ints& entries,
                 std::int64_t count, std::int64_t limit) {
  check_range(kernel, name, 0, count, entries.size());
  for (std::int64_t i = 0; i < count; ++i) {
    if (entries[i] >= limit) {
      fail(kernel, name, '[', i, "] is ", entries[i], ", expected below ", limit);
    }
  }
}

}  // namespace pyvllm_pp::kernels

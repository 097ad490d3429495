#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "pyvllm_pp/error.h"

/// What a kernel sees of a tensor: memory, element type and how many elements may be touched.
/// Integer arrays come as int32 or int64; kernels compute in int64 and check before they write.
namespace pyvllm_pp::kernels {

enum class ElementType : std::uint8_t {
  boolean,
  uint8,
  int32,
  int64,
  uint64,
  bfloat16,
  float16,
  float32,
  float64
};

[[nodiscard]] std::string_view name_of(ElementType type);
[[nodiscard]] std::int64_t bytes_of(ElementType type);

/// Casts between kernels' numbers and those of the standard library.
constexpr std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }
template <typename Container>
constexpr std::int64_t size_of(const Container& elements) {
  return static_cast<std::int64_t>(elements.size());
}

/// int32 or int64 elements. Copying it copies the view.
class Ints {
 public:
  constexpr Ints() = default;
  constexpr Ints(std::int32_t* data, std::int64_t size) : data_(data), size_(size) {}
  constexpr Ints(std::int64_t* data, std::int64_t size)
      : data_(data), size_(size), is_wide_(true) {}

  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    return is_wide_ ? static_cast<const std::int64_t*>(data_)[i]
                    : static_cast<const std::int32_t*>(data_)[i];
  }
  void set(std::int64_t i, std::int64_t value) const {
    if (is_wide_) {
      static_cast<std::int64_t*>(data_)[i] = value;
    } else {
      static_cast<std::int32_t*>(data_)[i] = static_cast<std::int32_t>(value);
    }
  }
  [[nodiscard]] constexpr std::int64_t size() const { return size_; }
  [[nodiscard]] constexpr bool is_absent() const { return data_ == nullptr; }

  /// Calls `visitor` with the typed pointer: for loops over many elements.
  template <typename Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return is_wide_ ? visitor(static_cast<std::int64_t*>(data_))
                    : visitor(static_cast<std::int32_t*>(data_));
  }

 private:
  void* data_ = nullptr;
  std::int64_t size_ = 0;
  bool is_wide_ = false;
};

/// Rows of int32 or int64 elements, `stride` elements from one to the next.
struct IntRows {
  Ints flat;
  std::int64_t stride = 0;

  [[nodiscard]] std::int64_t at(std::int64_t row, std::int64_t column) const {
    return flat[row * stride + column];
  }
  void set(std::int64_t row, std::int64_t column, std::int64_t value) const {
    flat.set(row * stride + column, value);
  }
};

/// `target[start + i] = source[from + i]` for `count` elements.
void copy(const Ints& source, std::int64_t from, const Ints& target, std::int64_t start,
          std::int64_t count);
/// `target[start + i] = first + i` for `count` elements.
void fill_ascending(const Ints& target, std::int64_t start, std::int64_t count, std::int64_t first);
/// `target[start + i] = value` for `count` elements.
void fill(const Ints& target, std::int64_t start, std::int64_t count, std::int64_t value);

/// Throws `std::invalid_argument` unless `[start, start + count)` lies within `[0, size)`.
inline void check_range(std::string_view kernel, std::string_view name, std::int64_t start,
                        std::int64_t count, std::int64_t size) {
  if (start < 0 || count < 0 || start > size || count > size - start) [[unlikely]] {
    fail(kernel, "elements ", start, " to ", start + count, " of ", name, ", which has ", size);
  }
}

/// Throws `std::invalid_argument` when one of the first `count` entries is `limit` or more.
/// Negative entries are allowed: they own no request.
void check_below(std::string_view kernel, std::string_view name, const Ints& entries,
                 std::int64_t count, std::int64_t limit);

}  // namespace pyvllm_pp::kernels

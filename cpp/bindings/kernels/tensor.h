#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/arrays.h"
#include "kernels/logits.h"

/// Torch tensors as kernel arrays, without torch: through the DLPack exchange table that a tensor
/// type offers. Each accessor checks type and size; none copies.
namespace pyvllm_pp::bindings {

namespace py = pybind11;

/// Memory of a CPU tensor, or of none for `None`. Valid while the tensor lives.
class Tensor {
 public:
  Tensor() = default;
  /// Throws `TypeError` for an object that is no CPU tensor of a type that kernels know.
  explicit Tensor(py::handle object);

  [[nodiscard]] bool is_absent() const { return data_ == nullptr && size_ == 0; }
  [[nodiscard]] kernels::ElementType type() const { return type_; }
  /// Elements from the first to the last, gaps of strides included.
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::byte* bytes() const { return static_cast<std::byte*>(data_); }

  /// As int32 or int64. Throws `TypeError` for another type.
  [[nodiscard]] kernels::Ints ints(std::string_view kernel, std::string_view name) const;
  [[nodiscard]] kernels::IntRows rows(std::string_view kernel, std::string_view name,
                                      std::int64_t stride) const {
    return {.flat = ints(kernel, name), .stride = stride};
  }

  /// Rows of float32, bfloat16 or float16. Throws `TypeError` for another type.
  [[nodiscard]] kernels::Logits logits(std::string_view kernel, std::int64_t stride,
                                       std::int64_t vocab_size) const;

  /// As `logits`, where the kernel is not told how long a row is: as long as the last one.
  [[nodiscard]] kernels::Logits logit_rows(std::string_view kernel, std::int64_t stride,
                                           std::int64_t num_rows) const {
    return logits(kernel, stride, num_rows == 0 ? 0 : size_ - (num_rows - 1) * stride);
  }

  /// At least `count` elements of type `T`. Throws `TypeError` or `ValueError`.
  template <typename T>
  [[nodiscard]] T* data(std::string_view kernel, std::string_view name, std::int64_t count) const;

  /// All elements, of type `T`. Throws `TypeError`.
  template <typename T>
  [[nodiscard]] std::span<T> span(std::string_view kernel, std::string_view name) const {
    return {data<T>(kernel, name, 0), static_cast<std::size_t>(size_)};
  }

 private:
  void require(std::string_view kernel, std::string_view name, kernels::ElementType type) const;

  void* data_ = nullptr;
  std::int64_t size_ = 0;
  kernels::ElementType type_ = kernels::ElementType::uint8;
};

template <typename T>
struct TypeOf;
template <>
struct TypeOf<bool> {
  static constexpr auto kType = kernels::ElementType::boolean;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr auto kType = kernels::ElementType::uint8;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr auto kType = kernels::ElementType::int32;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr auto kType = kernels::ElementType::int64;
};
template <>
struct TypeOf<std::uint64_t> {
  static constexpr auto kType = kernels::ElementType::uint64;
};
template <>
struct TypeOf<double> {
  static constexpr auto kType = kernels::ElementType::float64;
};
template <>
struct TypeOf<float> {
  static constexpr auto kType = kernels::ElementType::float32;
};

template <typename T>
T* Tensor::data(std::string_view kernel, std::string_view name, std::int64_t count) const {
  require(kernel, name, TypeOf<T>::kType);
  kernels::check_range(kernel, name, 0, count, size_);
  return static_cast<T*>(data_);
}

/// A launch's grid: up to three sizes, as vLLM writes it.
class Grid {
 public:
  Grid() = default;
  /// Throws `TypeError` for anything but a tuple of one to three integers.
  explicit Grid(py::handle object);
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const { return sizes_.at(axis); }

 private:
  std::array<std::int64_t, 3> sizes_{1, 1, 1};
};

}  // namespace pyvllm_pp::bindings

namespace pybind11::detail {

template <>
struct type_caster<pyvllm_pp::bindings::Tensor> {
  PYBIND11_TYPE_CASTER(pyvllm_pp::bindings::Tensor, const_name("object"));
  bool load(handle source, bool /*convert*/) {
    value = pyvllm_pp::bindings::Tensor(source);
    return true;
  }
};

template <>
struct type_caster<pyvllm_pp::bindings::Grid> {
  PYBIND11_TYPE_CASTER(pyvllm_pp::bindings::Grid, const_name("tuple"));
  bool load(handle source, bool /*convert*/) {
    value = pyvllm_pp::bindings::Grid(source);
    return true;
  }
};

}  // namespace pybind11::detail

#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "pyvllm_pp/error.h"

/// NumPy arrays as spans: exact dtype, one dimension, contiguous; never a silent copy.
namespace pyvllm_pp::bindings {

namespace py = pybind11;

inline std::size_t size(const py::array& array) { return static_cast<std::size_t>(array.shape(0)); }

/// NumPy lets a bool array be a view of any bytes; C++ may only read 0 and 1 as bool.
inline void check_bools(std::string_view room, std::string_view name,
                        std::span<const std::uint8_t> bytes) {
  std::uint8_t seen = 0;  // a plain loop: the compiler makes vectors of it
  for (const auto byte : bytes) {
    seen |= byte;
  }
  if (seen <= 1) {
    return;
  }
  const auto found = std::ranges::find_if(bytes, [](std::uint8_t byte) { return byte > 1; });
  fail(room, name, '[', found - bytes.begin(), "] holds the byte ", int{*found},
       ", expected 0 or 1");
}

template <typename T>
void check_array(std::string_view room, std::string_view name, const py::array& array) {
  if (!py::dtype::of<T>().is(array.dtype()) && !array.dtype().equal(py::dtype::of<T>())) {
    throw py::type_error(concat('[', room, "] ", name, " is ", std::string(py::str(array.dtype())),
                                ", expected ", std::string(py::str(py::dtype::of<T>()))));
  }
  if (array.ndim() != 1) {
    fail(room, name, " has ", array.ndim(), " dimensions, expected 1");
  }
  if (array.shape(0) > 1 && array.strides(0) != static_cast<py::ssize_t>(sizeof(T))) {
    fail(room, name, " has a stride of ", array.strides(0), " bytes, expected contiguous");
  }
  if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0) {
    fail(room, name, " is not aligned to ", alignof(T), " bytes");
  }
  if constexpr (std::is_same_v<T, bool>) {
    check_bools(room, name, {static_cast<const std::uint8_t*>(array.data()), size(array)});
  }
}

/// Throws `TypeError` for another dtype, `ValueError` for another shape. No ownership: the caller
/// holds the array for as long as the span is used.
template <typename T>
std::span<const T> as_span(std::string_view room, std::string_view name, const py::array& array) {
  check_array<T>(room, name, array);
  return {static_cast<const T*>(array.data()), size(array)};
}

/// As `as_span`, for arrays that are written.
template <typename T>
std::span<T> as_writable_span(std::string_view room, std::string_view name, py::array& array) {
  check_array<T>(room, name, array);
  if (!array.writeable()) {
    fail(room, name, " is read-only, expected a writable array");
  }
  return {static_cast<T*>(array.mutable_data()), size(array)};
}

/// A NumPy view of memory that `owner` keeps alive.
template <typename T>
py::array view(std::span<T> span, const py::object& owner) {
  return py::array_t<T>(static_cast<py::ssize_t>(span.size()), span.data(), owner);
}

}  // namespace pyvllm_pp::bindings
